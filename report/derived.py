"""The page's section about the derived layout."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from report import html
from report.layout import boxes, evident_pi, slot_labels
from report.runs import Trajectory, read_json, texts
from report.style import compact


def derived_section(run_folder: Path, known: Sequence[Trajectory]) -> str:
    """The chosen layout and the other architectures of the run, as HTML; empty without any.

    Args:
        run_folder: the run.
        known: what its searches recorded.

    Raises:
        ValueError: an architecture file is damaged.
    """
    chosen = run_folder / "architecture.json"
    others = sorted((run_folder / "architectures").glob("*.json"))
    if not chosen.exists() and not others:
        return ""
    labels_of = {path: _labels(path) for path in [*([chosen] if chosen.exists() else []), *others]}
    palette = _palette(labels_of, known)
    parts = []
    if chosen.exists():
        content, labels = read_json(chosen), labels_of[chosen]
        name = str(content.get("name") or "")
        others = [path for path in others if path.stem != name]
        sure = evident_pi(content, labels)
        parts.append(html.paragraph(_summary(content, labels)))
        parts.append(boxes(labels, sure, palette))
        if any(pi is not None for pi in sure):
            parts.append(html.note("Above each kind its slot, below it the pi it was chosen with."))
        parts.append(html.caveats(_caveats(chosen, content)))
    for path in others:
        empty: list[float | None] = [None] * len(labels_of[path])
        row = boxes(labels_of[path], empty, palette, small=True)
        parts.append(f'<div class="other"><span>{escape(path.stem)}</span>{row}</div>')
    return html.section("Derived layout", "".join(parts))


def _caveats(path: Path, architecture: Mapping[str, Any]) -> list[str]:
    evidence = architecture.get("evidence")
    if not isinstance(evidence, dict):
        return []
    return texts(path, "evidence.caveats", evidence.get("caveats", []))


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


def _labels(path: Path) -> list[str]:
    try:
        return slot_labels(read_json(path))
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(str(path)) else f"{path}: {text}") from error


def _palette(labels_of: Mapping[Path, list[str]], known: Sequence[Trajectory]) -> list[str]:
    """All labels of the page, those of the search first and in its order."""
    groups = [*(trajectory.labels for trajectory in known), *labels_of.values()]
    return list(dict.fromkeys(label for group in groups for label in group))
