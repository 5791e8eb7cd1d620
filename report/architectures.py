"""The layouts of a run as their files tell them, and which of them a page shows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report.run_files import read_json, texts
from utils.text import compact

CHOSEN, OTHERS, FRONT = "architecture.json", "architectures", "pareto.json"
_COSTS = (("parameters", "parameters"), ("flops_per_token", "FLOPs per token"))


@dataclass(frozen=True)
class Layout:
    """A layout: the label of each slot, the pi each was chosen with, and what is known of it.

    `gap` is what choosing one candidate per slot costs, as the derivation measured it.
    """

    name: str
    labels: tuple[str, ...]
    pi_L: tuple[float | None, ...] = ()
    method: str = ""
    costs: Mapping[str, float] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()
    gap: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sure(self) -> tuple[float | None, ...] | None:
        """The pi of each slot, where the file keeps any."""
        return self.pi_L if any(pi is not None for pi in self.pi_L) else None

    @property
    def summary(self) -> str:
        """Name, method, kinds and costs in one line."""
        kinds = dict.fromkeys(self.labels)
        counts = ", ".join(f"{self.labels.count(label)} {label}" for label in kinds)
        costs = [f"{compact(self.costs[key])} {unit}" for key, unit in _COSTS if key in self.costs]
        return "; ".join(part for part in (self.name, self.method, counts, *costs) if part)


def read_layouts(run_folder: Path) -> tuple[Layout | None, list[Layout]]:
    """The chosen layout, where there is one, and the others of the run.

    Raises:
        ValueError: a file is damaged; the message names it.
    """
    chosen = run_folder / CHOSEN
    stale = _stale_fronts(run_folder)
    files = sorted((run_folder / OTHERS).glob("*.json"))
    others = [read_layout(path) for path in files if path.stem not in stale]
    if not chosen.exists():
        return None, others
    layout = read_layout(chosen)
    return layout, [other for other in others if other.name != layout.name]


def read_layout(path: Path) -> Layout:
    """Read an architecture's file; ValueError names it where it is damaged."""
    content = read_json(path)
    labels = _labels(path, content.get("slots"))
    evidence, costs = content.get("evidence"), content.get("costs")
    known = evidence if isinstance(evidence, dict) else {}
    gap = known.get("gap")
    # The file of another layout than the chosen one is known by its name on disk.
    name = content.get("name") if path.name == CHOSEN else path.stem
    return Layout(
        name=str(name or "layout"),
        labels=tuple(labels),
        pi_L=_pi_of(known.get("pi"), labels),
        method=str(known.get("method") or ""),
        costs={
            key: number
            for key, value in (costs.items() if isinstance(costs, dict) else ())
            if (number := as_number(value)) is not None
        },
        caveats=tuple(texts(path, "evidence.caveats", known.get("caveats", []))),
        gap=gap if isinstance(gap, dict) else {},
    )


def as_number(value: Any) -> float | None:
    """A finite number of a JSON file; None where it is something else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _labels(path: Path, slots: Any) -> list[str]:
    if not isinstance(slots, list) or not slots:
        raise ValueError(f"{path}: slots: expected a list of slots, found {slots!r}")
    labels = []
    for index, slot in enumerate(slots):
        label = slot.get("label") or slot.get("kind") if isinstance(slot, dict) else slot
        if not isinstance(label, str):
            raise ValueError(f"{path}: slots.{index}: has no label")
        labels.append(label)
    return labels


def _pi_of(pi_L: Any, labels: Sequence[str]) -> tuple[float | None, ...]:
    """The pi that is kept of each slot's label; None where none is."""
    if not isinstance(pi_L, list) or len(pi_L) != len(labels):
        return (None,) * len(labels)
    return tuple(
        as_number(pi_C.get(label)) if isinstance(pi_C, dict) else None
        for pi_C, label in zip(pi_L, labels, strict=True)
    )


def _stale_fronts(run_folder: Path) -> set[str]:
    """The layouts of fronts that were derived before the present one, by name."""
    summary = run_folder / FRONT
    if not summary.exists():
        return set()
    front = read_json(summary).get("front")
    names = {path.stem for path in (run_folder / OTHERS).glob("pareto-*.json")}
    return names - set(map(str, front)) if isinstance(front, list) else set()
