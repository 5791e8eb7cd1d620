"""A layout as a row of coloured boxes, and the page's section about the derived one."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from report import html
from report.plotting import colours, compact, text_on
from report.run_files import Trajectory, read_json, texts

_ONE_ROW = 11  # full boxes that stand side by side on the page


def _labels(path: Path) -> list[str]:
    slots = read_json(path).get("slots")
    if not isinstance(slots, list) or not slots:
        raise ValueError(f"{path}: slots: expected a list of slots, found {slots!r}")
    labels = []
    for index, slot in enumerate(slots):
        label = slot.get("label") or slot.get("kind") if isinstance(slot, dict) else slot
        if not isinstance(label, str):
            raise ValueError(f"{path}: slots.{index}: has no label")
        labels.append(label)
    return labels


def _evident_pi(architecture: Mapping[str, Any], labels: Sequence[str]) -> list[float | None]:
    """The pi an architecture file keeps of each slot's label; None where it keeps none."""
    evidence = architecture.get("evidence")
    pi_L = evidence.get("pi") if isinstance(evidence, dict) else None
    if not isinstance(pi_L, list) or len(pi_L) != len(labels):
        return [None] * len(labels)
    values = [
        pi_C.get(label) if isinstance(pi_C, dict) else None
        for pi_C, label in zip(pi_L, labels, strict=True)
    ]
    return [float(value) if isinstance(value, int | float) else None for value in values]


def likeliest_boxes(trajectory: Trajectory) -> str:
    """HTML of each slot's likeliest candidate at the last step, with its pi."""
    pi_LC = trajectory.pi_NLC[-1]
    labels = [trajectory.labels[int(k)] for k in pi_LC.argmax(axis=1)]
    return _boxes(labels, trajectory.labels, pi_LC.max(axis=1).tolist())


def _boxes(
    labels: Sequence[str], palette: Sequence[str], pi_L: Sequence[float | None] | None = None
) -> str:
    """A row of boxes, small ones without pi; `palette` has all labels that get a colour."""
    hue = colours(palette)
    cells = []
    for slot, (label, pi) in enumerate(zip(labels, pi_L or [None] * len(labels), strict=True)):
        style = f"background:{hue[label]};color:{text_on(hue[label])}"
        sure = "" if pi is None else f'<span class="pi">{pi:.2f}</span>'
        title = f"slot {slot}: {label}" + ("" if pi is None else f", pi {pi:.4f}")
        cells.append(
            f'<div class="box" style="{style}" title="{escape(title)}">'
            f'<span class="slot">{slot}</span><span class="kind">{escape(label)}</span>{sure}</div>'
        )
    size = (" many" if len(labels) > _ONE_ROW else "") + (" small" if pi_L is None else "")
    return f'<div class="boxes{size}">{"".join(cells)}</div>'


def derived_section(run_folder: Path, searches: Sequence[Trajectory]) -> str:
    """The chosen layout and the other architectures of the run, as HTML; empty without any.

    Labels have the colours that they have in the figures of `searches`, which come first.
    """
    chosen = run_folder / "architecture.json"
    stale = _stale_fronts(run_folder)
    files = sorted((run_folder / "architectures").glob("*.json"))
    others = [path for path in files if path.stem not in stale]
    paths = [chosen, *others] if chosen.exists() else others
    if not paths:
        return ""
    labels_of = {path: _labels(path) for path in paths}
    groups = [*(trajectory.labels for trajectory in searches), *labels_of.values()]
    palette = list(dict.fromkeys(label for group in groups for label in group))
    parts = []
    if chosen.exists():
        content, labels = read_json(chosen), labels_of[chosen]
        name = str(content.get("name") or "")
        others = [path for path in others if path.stem != name]
        sure = _evident_pi(content, labels)
        parts.append(html.paragraph(_summary(content, labels)))
        parts.append(_boxes(labels, palette, sure))
        if any(pi is not None for pi in sure):
            parts.append(html.note("Above each kind its slot, below it the pi it was chosen with."))
        evidence = content.get("evidence")
        if isinstance(evidence, dict):
            caveats = texts(chosen, "evidence.caveats", evidence.get("caveats", []))
            parts.append(html.caveats(caveats))
    for path in others:
        row = _boxes(labels_of[path], palette)
        parts.append(f'<div class="other"><span>{escape(path.stem)}</span>{row}</div>')
    return html.section("Derived layout", "".join(parts))


def _stale_fronts(run_folder: Path) -> set[str]:
    """The layouts of fronts that were derived before the present one, by name."""
    summary = run_folder / "pareto.json"
    if not summary.exists():
        return set()
    front = read_json(summary).get("front")
    names = {path.stem for path in (run_folder / "architectures").glob("pareto-*.json")}
    return names - set(map(str, front)) if isinstance(front, list) else set()


def _summary(architecture: Mapping[str, Any], labels: list[str]) -> str:
    """Name, method, kinds and costs of a layout in one line."""
    counts = ", ".join(f"{labels.count(label)} {label}" for label in dict.fromkeys(labels))
    evidence, costs = architecture.get("evidence"), architecture.get("costs")
    parts = [str(architecture.get("name") or "layout")]
    if isinstance(evidence, dict) and evidence.get("method"):
        parts.append(str(evidence["method"]))
    parts.append(counts)
    for key, unit in (("parameters", "parameters"), ("flops_per_token", "FLOPs per token")):
        value = costs.get(key) if isinstance(costs, dict) else None
        if isinstance(value, int | float):
            parts.append(f"{compact(value)} {unit}")
    return "; ".join(parts)
