"""A layout as a row of coloured boxes, one per slot."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from report.runs import Trajectory
from report.style import colours, text_on

_ONE_ROW = 11  # full boxes that stand side by side on the page


def slot_labels(architecture: Mapping[str, Any]) -> list[str]:
    """The label of every slot of an architecture file.

    Raises:
        ValueError: a slot has none.
    """
    slots = architecture.get("slots")
    if not isinstance(slots, list) or not slots:
        raise ValueError(f"slots: expected a list of slots, found {slots!r}")
    labels = []
    for index, slot in enumerate(slots):
        label = slot.get("label") or slot.get("kind") if isinstance(slot, dict) else slot
        if not isinstance(label, str):
            raise ValueError(f"slots.{index}: has no label")
        labels.append(label)
    return labels


def evident_pi(architecture: Mapping[str, Any], labels: Sequence[str]) -> list[float | None]:
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


def last_pi(trajectory: Trajectory, labels: Sequence[str]) -> list[float | None]:
    """The last pi of each slot's label; None where the search did not know that label or slot."""
    pi_LC, known = trajectory.pi_NLC[-1], trajectory.labels
    if len(pi_LC) != len(labels):
        return [None] * len(labels)
    return [
        float(pi_LC[slot, known.index(label)]) if label in known else None
        for slot, label in enumerate(labels)
    ]


def likeliest(trajectory: Trajectory) -> list[str]:
    """Each slot's likeliest candidate at the last step."""
    return [trajectory.labels[int(k)] for k in np.argmax(trajectory.pi_NLC[-1], axis=1)]


def boxes(
    labels: Sequence[str],
    confidences: Sequence[float | None],
    palette: Sequence[str],
    *,
    small: bool = False,
) -> str:
    """HTML of the row; `palette` lists all labels of the page, so that colours stay the same."""
    hue = colours(palette)
    cells = []
    for slot, (label, pi) in enumerate(zip(labels, confidences, strict=True)):
        style = f"background:{hue[label]};color:{text_on(hue[label])}"
        sure = "" if pi is None else f'<span class="pi">{pi:.2f}</span>'
        title = f"slot {slot}: {label}" + ("" if pi is None else f", pi {pi:.4f}")
        cells.append(
            f'<div class="box" style="{style}" title="{escape(title)}">'
            f'<span class="slot">{slot}</span><span class="kind">{escape(label)}</span>{sure}</div>'
        )
    size = (" many" if len(labels) > _ONE_ROW else "") + (" small" if small else "")
    return f'<div class="boxes{size}">{"".join(cells)}</div>'
