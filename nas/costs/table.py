"""Measured times of every candidate, corrected against whole models: a file for each machine.

A layout's time is floor + scale * (rest + the sum of its candidates'). A candidate's time is that
of a model with it in every slot, less that of a model without slots, by the number of slots. Such
stacks repeat one block, and layouts mix them, so floor and scale are fitted to whole layouts.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from model import Candidate, Layout, layout_letters
from nas.costs.budget import LayoutCost
from utils.files import read_object
from utils.validation import Section, first_problem

# Above this mean error, or below this rank correlation, of whole layouts a table is warned of.
MOST_ERROR, LEAST_TAU = 0.08, 0.9


class Whole(Section):
    """A whole layout, measured, and as the table predicts it."""

    layout: str
    measured_ms: float
    predicted_ms: float


class WorkloadTimes(Section):
    """The times of one workload.

    Floor and scale were fitted to the layouts of `wholes`, and not to those of `held_out`.
    """

    rest_ms: float
    by_label_ms: dict[str, float]
    floor_ms: float
    scale: float
    wholes: tuple[Whole, ...]
    held_out: tuple[Whole, ...] = ()

    @property
    def agreement(self) -> "Agreement":
        """How well whole layouts are predicted: held-out ones where there are any."""
        return agreement(self.held_out or self.wholes)

    @property
    def doubt(self) -> str | None:
        """Why predictions may not be trusted; None where they may."""
        shown = self.agreement
        if shown.trusted:
            return None
        which = "held-out" if self.held_out else "fitted"
        return (
            f"the table may not be trusted: of {len(self.held_out or self.wholes)} {which} layouts "
            f"the mean error is {shown.error:.1%} (at most {MOST_ERROR:.0%}) and Kendall's tau "
            f"{shown.tau:.2f} (at least {LEAST_TAU}); measure it again on a quiet machine, with a "
            "larger costs.repeats (tools.latency)"
        )

    def cost(self, name: str) -> LayoutCost:
        """The corrected time of layouts."""
        return LayoutCost(
            name,
            {label: self.scale * value for label, value in self.by_label_ms.items()},
            self.floor_ms + self.scale * self.rest_ms,
            error=self.agreement.error,
            doubt=self.doubt,
        )


class CostTable(Section):
    """Times by workload; `key` is all that they hold for."""

    version: Literal[1] = 1
    key: dict[str, Any]
    workloads: dict[str, WorkloadTimes]

    def with_workload(self, name: str, times: WorkloadTimes) -> "CostTable":
        """The table with another workload's times, or with new ones."""
        return self.model_copy(update={"workloads": {**self.workloads, name: times}})


def read_table(path: Path, key: Mapping[str, Any], remedy: str) -> CostTable:
    """Read a table that tools.latency wrote; `remedy` says what to do where it cannot be used.

    Raises:
        ValueError: it is broken, or of another machine, shape or version; the message says which.
    """
    content = read_object(path)
    theirs, ours = content.get("key", {}), json.loads(json.dumps(key))
    for name in sorted(ours.keys() | theirs.keys()):
        if theirs.get(name) != ours.get(name):
            was, here = (f"{one.get(name)!s:.80}" for one in (theirs, ours))
            raise ValueError(f"{path}: was measured with {name} {was}, here it is {here}; {remedy}")
    try:
        return CostTable.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path}: {first_problem(error)}; {remedy}") from None


def times_table(
    measure: Callable[[Mapping[str, Layout]], Mapping[str, float]],
    candidates: Sequence[Candidate],
    slots: int,
    wholes: Sequence[Layout],
    held_out: Sequence[Layout] = (),
) -> WorkloadTimes:
    """Time stacks of each candidate and whole layouts, all in turn, and fit the correction."""
    stacks = {candidate.label: (candidate,) * slots for candidate in candidates}
    named = {str(number): layout for number, layout in enumerate([*wholes, *held_out])}
    times = measure({"rest": (), **stacks, **named})
    rest_ms = times["rest"]
    by_label_ms = {label: max(0.0, (times[label] - rest_ms) / slots) for label in stacks}
    measured_N = np.array([times[name] for name in named])
    summed_N = np.array(
        [rest_ms + sum(by_label_ms[slot.label] for slot in one) for one in named.values()]
    )
    fitted = len(wholes)
    floor_ms, scale = fit_correction(summed_N[:fitted], measured_N[:fitted])
    predicted_N = floor_ms + scale * summed_N
    both = tuple(
        Whole(layout=layout_letters(layout), measured_ms=float(one), predicted_ms=float(other))
        for layout, one, other in zip(named.values(), measured_N, predicted_N, strict=True)
    )
    return WorkloadTimes(
        rest_ms=rest_ms,
        by_label_ms=by_label_ms,
        floor_ms=floor_ms,
        scale=scale,
        wholes=both[:fitted],
        held_out=both[fitted:],
    )


def fit_correction(summed_N: NDArray[Any], measured_N: NDArray[Any]) -> tuple[float, float]:
    """Floor and scale of least squared relative error; the floor is 0 where all sums are alike."""
    weights_N = 1.0 / measured_N
    one_N, scaled_N = weights_N, summed_N * weights_N
    columns = np.stack([one_N, scaled_N], axis=1)
    if np.ptp(summed_N) > 0.05 * summed_N.mean():
        (floor, scale), *_ = np.linalg.lstsq(columns, np.ones(len(columns)), rcond=None)
        if scale > 0:
            return float(floor), float(scale)
    return 0.0, float(scaled_N.sum() / (scaled_N @ scaled_N))


@dataclass(frozen=True)
class Agreement:
    """How well a table predicts whole layouts: mean relative error and Kendall's tau-b."""

    error: float
    tau: float

    @property
    def trusted(self) -> bool:
        """Whether it may be trusted."""
        return self.error <= MOST_ERROR and self.tau >= LEAST_TAU


def agreement(wholes: Sequence[Whole]) -> Agreement:
    """Of measured and predicted times."""
    measured = np.array([whole.measured_ms for whole in wholes])
    predicted = np.array([whole.predicted_ms for whole in wholes])
    error = float(np.mean(np.abs(predicted - measured) / measured))
    from scipy.stats import kendalltau  # 0.7 s, for those who measure alone

    tau = float(kendalltau(measured, predicted).statistic)
    return Agreement(error, 0.0 if math.isnan(tau) else tau)


def spread_layouts(
    candidates: Sequence[Candidate], slots: int, count: int, seed: int
) -> list[Layout]:
    """Random layouts, from nearly one kind to all mixed: kinds by a uniform mixture, any order."""
    generator = np.random.default_rng([seed, 4])
    part_NC = generator.dirichlet(np.ones(len(candidates)), size=count)
    layouts = list[Layout]()
    for part_C in part_NC:
        drawn = generator.choice(len(candidates), size=slots, p=part_C)
        layouts.append(tuple(candidates[k] for k in drawn))
    return layouts
