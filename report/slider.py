"""Pi as a grid of slots and candidates with a slider over the steps, and the script that moves it.

Without the script the last step stands there. N shown steps   L slots   C candidates
"""

from collections.abc import Sequence
from functools import cache
from html import escape

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from report import html
from report.plotting import PI_MAP, text_on
from report.run_files import Trajectory, frame_rows
from utils.text import shorten

MOST_STEPS = 50
_SLOTS_PER_BAND = 16
_CELL_WIDTH, _CELL_HEIGHT, _LEFT, _HEAD = 46, 24, 150, 20  # pixels, as all here
_LONGEST = 20
_THOUSAND = 1000  # pi in whole thousandths: what is read off a cell

SCRIPT = """"use strict";
for (const figure of document.querySelectorAll("figure.steps")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const picture = figure.querySelector("svg");
  const cells = picture.querySelectorAll("rect");
  const numbers = picture.querySelectorAll("text.pi");
  const input = figure.querySelector("input");
  const output = figure.querySelector("output");
  const count = data.labels.length;
  const show = (at) => {
    const pi = data.pi[at];
    const likeliest = [];
    for (let slot = 0; slot * count < pi.length; slot += 1) {
      const own = pi.slice(slot * count, (slot + 1) * count);
      const best = Math.max(...own);
      const alone = own.indexOf(best) === own.lastIndexOf(best);
      own.forEach((value, kind) => {
        const level = Math.round((value / 1000) * 255);
        const place = slot * count + kind;
        cells[place].setAttribute("fill", "#" + data.ramp.slice(6 * level, 6 * level + 6));
        numbers[place].setAttribute("fill", level < data.dark ? "#ffffff" : "#000000");
        numbers[place].classList.toggle("likeliest", alone && value === best);
        numbers[place].textContent = (value / 1000).toFixed(2);
      });
      likeliest.push("slot " + slot + " " + data.labels[own.indexOf(best)]);
    }
    const words = "step " + data.step[at] + " of " + data.step[data.step.length - 1];
    output.textContent = words + ", tau " + data.tau[at].toFixed(2);
    input.setAttribute("aria-valuetext", words);
    picture.setAttribute("aria-label", "pi at " + words + "; likeliest: " + likeliest.join(", "));
  };
  input.addEventListener("input", () => show(Number(input.value)));
  show(Number(input.value));
  figure.querySelector("div").hidden = false;
}
"""


def heat_map_with_slider(trajectory: Trajectory) -> str:
    """HTML of the grid at the last step, with the steps before for the script."""
    rows = frame_rows(trajectory.step_N, trajectory.alpha_start, MOST_STEPS)
    pi_NLC = trajectory.pi_NLC[rows]
    last = len(rows) - 1
    data = {
        "labels": list(trajectory.labels),
        "step": trajectory.step_N[rows].tolist(),
        "tau": [round(float(tau), 4) for tau in trajectory.tau_N[rows]],
        "pi": (pi_NLC * _THOUSAND).round().astype(int).reshape(len(rows), -1).tolist(),
        "ramp": "".join(colour.removeprefix("#") for colour in _ramp()),
        "dark": _first_light_level(),
    }
    slider = (
        '<div hidden><label>step (arrow keys) <input type="range" min="0" step="1" '
        f'max="{last}" value="{last}"></label><output></output></div>'
    )
    picture = _picture(pi_NLC[-1], trajectory.labels, int(trajectory.step_N[-1]))
    caption = "pi of each candidate in each slot; the likeliest is bold."
    return (
        f'<figure class="steps">{slider}{picture}<figcaption>{escape(caption)}</figcaption>'
        f"{html.json_block(data)}</figure>"
    )


@cache
def _ramp() -> tuple[str, ...]:
    return tuple(to_hex(colormaps[PI_MAP](level)) for level in range(256))


@cache
def _first_light_level() -> int:
    """The first of 256 levels of pi on which black is easier to read than white."""
    return next(level for level, colour in enumerate(_ramp()) if text_on(colour) == "#000000")


def _picture(pi_LC: np.ndarray, labels: Sequence[str], step: int) -> str:
    """The grid as SVG: rows are candidates, columns slots, at most 16 of them in a band."""
    slots, candidates = pi_LC.shape
    bands = -(-slots // _SLOTS_PER_BAND)
    high = _HEAD + candidates * _CELL_HEIGHT
    width = _LEFT + min(slots, _SLOTS_PER_BAND) * _CELL_WIDTH
    height = bands * (high + 10)
    names = [
        _text(_LEFT - 8, band * (high + 10) + _HEAD + (row + 0.68) * _CELL_HEIGHT,
              shorten(label, _LONGEST), "end")
        for band in range(bands)
        for row, label in enumerate(labels)
    ]  # fmt: skip
    columns = "".join(_column(pi_C, slot, high) for slot, pi_C in enumerate(pi_LC))
    return (
        f'<svg role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'aria-label="{escape(grid_words(pi_LC, labels, step))}">{"".join(names)}{columns}</svg>'
    )


def grid_words(pi_LC: np.ndarray, labels: Sequence[str], step: int) -> str:
    """What the grid shows, in words: each slot's likeliest candidate."""
    best_L = pi_LC.argmax(axis=1)
    likeliest = ", ".join(
        f"slot {slot} {labels[int(best)]} {pi_LC[slot, best]:.2f}"
        for slot, best in enumerate(best_L)
    )
    return f"pi at step {step}; likeliest: {likeliest}"


def _column(pi_C: np.ndarray, slot: int, high: int) -> str:
    """A slot's number and cells; the script finds the cells in this order."""
    left = _LEFT + slot % _SLOTS_PER_BAND * _CELL_WIDTH
    top = slot // _SLOTS_PER_BAND * (high + 10)
    middle = left + _CELL_WIDTH / 2
    parts = [_text(middle, top + 14, f"{slot}", "middle")]
    alone = int((pi_C >= pi_C.max()).sum()) == 1
    for row, value in enumerate(pi_C.tolist()):
        y, fill = top + _HEAD + row * _CELL_HEIGHT, _ramp()[round(255 * value)]
        best = " likeliest" if alone and value == pi_C.max() else ""
        parts.append(
            f'<rect x="{left}" y="{y}" width="{_CELL_WIDTH - 1}" height="{_CELL_HEIGHT - 1}" '
            f'fill="{fill}"/>'
        )
        parts.append(_text(middle, y + 0.68 * _CELL_HEIGHT, f"{value:.2f}", "middle",
                           f' class="pi{best}" fill="{text_on(fill)}"'))  # fmt: skip
    return "".join(parts)


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>{escape(words)}</text>'
