"""Numbers that blocks report of themselves over the steps, such as the span of each head of a slot.

N validations   K numbers of a block
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from report.panels import panel_columns
from report.plotting import INK, house_style, make_figure, short_label, step_axis
from report.run_files import reading

BLOCKS_FIGURE = "blocks.png"
BLOCKS_WORDS = (
    "span_keys: keys that a head sees in full; largest_cluster: share of tokens in a head's "
    "fullest cluster, at 1 routing chooses nothing; load: share of choices for each expert"
)
_LINE = "#0072b2"
# Inches: a panel's height, that of a row of panels, room for a title, and left of the panels.
_PANEL, _ROW, _HEAD, _LEFT = 1.15, 1.67, 0.3, 0.6


@dataclass(frozen=True)
class Series:
    """Numbers of one name of one slot's candidate, at each validation that has them."""

    step_N: np.ndarray
    value_NK: np.ndarray


# By label and name, then by slot.
Described = dict[tuple[str, str], dict[int, Series]]


def described(metrics: pd.DataFrame, path: Path) -> Described:
    """Collect what the rows of a `metrics.jsonl` say of blocks; mostly nothing.

    Raises:
        ValueError: a row is broken; the message names the path.
    """
    found: dict[tuple[str, str], dict[int, dict[int, list[float]]]] = {}
    if "blocks" not in metrics:
        return {}
    rows = metrics[metrics["kind"] == "blocks"]
    with reading(path):
        for step, blocks in zip(rows["step"], rows["blocks"], strict=True):
            for block in blocks:
                for name, values in block["numbers"].items():
                    slots = found.setdefault((block["label"], name), {})
                    slots.setdefault(block["slot"], {})[int(step)] = values
        return {
            key: {
                slot: Series(np.array(list(by_step)), np.array(list(by_step.values())))
                for slot, by_step in sorted(slots.items())
            }
            for key, slots in found.items()
        }


def blocks_figure(found: Described) -> Figure:
    """A panel for each slot: its numbers as thin lines, their mean as a thick one.

    The panels of one label and name stand together, on one scale.
    """
    columns = max(panel_columns(len(slots)) for slots in found.values())
    heights = {key: _HEAD + _ROW * -(-len(slots) // columns) for key, slots in found.items()}
    panel = min(5.4, 9.6 / columns)
    width, height = _LEFT + panel * columns + 0.15, sum(heights.values()) + 0.1
    steps = np.concatenate([one.step_N for slots in found.values() for one in slots.values()])
    with house_style():
        figure = make_figure(width, height)
        top = height
        for (label, name), slots in found.items():
            title = f"{short_label(label, 40)}: {short_label(name, 30)}"
            figure.text(0.1 / width, (top - 0.22) / height, title, fontsize=9.5)
            most = max(float(one.value_NK.max()) for one in slots.values())
            for place, (slot, one) in enumerate(slots.items()):
                row, column = divmod(place, columns)
                left, bottom = _LEFT + panel * column, top - _HEAD - row * _ROW - 0.2 - _PANEL
                box = (left / width, bottom / height, (panel - 0.35) / width, _PANEL / height)
                axes = figure.add_axes(box)
                _draw(axes, slot, one, most)
                step_axis(axes, int(steps.min()), int(steps.max()), ticks=4)
            top -= heights[label, name]
    return figure


def _draw(axes: Axes, slot: int, one: Series, most: float) -> None:
    low, high = float(one.value_NK[-1].min()), float(one.value_NK[-1].max())
    ends = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    axes.set_title(f"slot {slot}: {ends}", loc="left", fontsize=8.0, pad=3)
    marker = "o" if len(one.step_N) == 1 else ""
    # A single point stands on the edge of its axes.
    shape: dict[str, Any] = {"marker": marker, "markersize": 3, "clip_on": not marker}
    axes.plot(one.step_N, one.value_NK, color=_LINE, alpha=0.6, linewidth=0.9, **shape)
    axes.plot(one.step_N, one.value_NK.mean(axis=1), color=INK, linewidth=1.8, **shape)
    axes.set_ylim(0, 1.06 * most if most > 0 else 1)
    axes.grid(axis="y")
    axes.set_xlabel("step", labelpad=1)
