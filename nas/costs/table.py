"""Measured times of every candidate, corrected against whole models: a file for each machine.

A layout's time is floor + scale * (rest + the sum of its candidates'). A candidate's time is that
of a model with it in every slot, less that of a model without slots, by the number of slots. Such
stacks repeat one block, and layouts mix them, so floor and scale are fitted to whole layouts.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from model import Candidate, LanguageModel, Layout, layout_letters
from nas.costs.budget import LayoutCost, check_labels
from nas.costs.latency import time_in_turn
from nas.costs.workloads import WORKLOADS, Shapes
from utils.files import read_object, write_whole
from utils.validation import Section, dotted, explain

# Above this mean error, or below this rank correlation, of whole layouts a table is warned of.
MOST_ERROR, LEAST_TAU = 0.08, 0.9


# No pass takes eleven days: a time above it is damage.
MOST_MS = 1e9
_Ms = Annotated[float, Field(ge=0, le=MOST_MS)]
# A fitted floor, and so what is predicted, may lie below 0.
_FittedMs = Annotated[float, Field(ge=-MOST_MS, le=MOST_MS)]


class Whole(Section):
    """A whole layout, measured, and as the table predicts it."""

    layout: str = Field(max_length=20_000)
    measured_ms: float = Field(gt=0, le=MOST_MS)
    predicted_ms: _FittedMs


class WorkloadTimes(Section):
    """The times of one workload.

    Floor and scale were fitted to the layouts of `wholes`, and not to those of `held_out`.
    """

    rest_ms: float = Field(gt=0, le=MOST_MS)
    by_label_ms: dict[str, _Ms]
    floor_ms: _FittedMs
    scale: float = Field(gt=0, le=1e6)
    wholes: tuple[Whole, ...] = Field(min_length=1)
    held_out: tuple[Whole, ...] = ()

    @property
    def agreement(self) -> "Agreement":
        """How well whole layouts are predicted: held-out ones where there are any."""
        return agreement(self.held_out or self.wholes)

    @property
    def distrust(self) -> str | None:
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
            doubt=self.distrust,
        )


class CostTable(Section):
    """Times by workload; `key` is all that they hold for."""

    version: Literal[1] = 1
    key: dict[str, Any]
    workloads: dict[str, WorkloadTimes]

    def with_workload(self, name: str, times: WorkloadTimes) -> "CostTable":
        """The table with another workload's times, or with new ones."""
        return self.model_copy(update={"workloads": {**self.workloads, name: times}})


def read_table(
    path: Path, key: Mapping[str, Any], remedy: str = "measure it again (tools.latency)"
) -> CostTable:
    """Read a table; `remedy` says what to do where it cannot be used.

    Raises:
        ValueError: it is damaged, or of another machine, shape or version; the message says which.
    """
    content = read_object(path)
    theirs, ours = content.get("key"), json.loads(json.dumps(key))
    if isinstance(theirs, dict):
        for name in sorted(ours.keys() | theirs.keys()):
            if theirs.get(name) != ours.get(name):
                raise ValueError(
                    f"{path}: was measured with {name} {_shown(theirs.get(name))}, here it is "
                    f"{_shown(ours.get(name))}; {remedy}"
                )
    try:
        table = CostTable.model_validate(content)
    except ValidationError as error:
        key_of_problem, words = explain(error.errors(), CostTable, content)[0]
        raise ValueError(f"{path}: {dotted(key_of_problem)}: {words}; {remedy}") from None
    labels = [candidate["label"] for candidate in ours["candidates"]]
    for name, times in table.workloads.items():
        try:
            check_labels(times.by_label_ms, labels)
        except ValueError as error:
            place = dotted(("workloads", name, "by_label_ms"))
            raise ValueError(f"{path}: {place}: {error!s:.400}; {remedy}") from None
    return table


def _shown(value: Any) -> str:
    return f"{value!s:.80}"


def write_table(path: Path, table: CostTable) -> None:
    """Write a table whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, table.model_dump_json(indent=1) + "\n")


@dataclass(frozen=True)
class Measurement:
    """What a table is measured of, and how.

    Attributes:
        build: a model with one candidate in each slot, on the device; the layout may be empty.
        rounds: how often each model is timed; short passes more often (`time_in_turn`).
    """

    candidates: Sequence[Candidate]
    slots: int
    build: Callable[[Layout], LanguageModel]
    shapes: Shapes
    rounds: int
    patience_s: float

    def times_ms(self, workload: str, layouts: Mapping[str, Layout]) -> dict[str, float]:
        """The median time of whole layouts, taken in turn; raises `Busy`."""
        models = {name: self.build(layout) for name, layout in layouts.items()}
        return self.times_of(workload, models)

    def times_of(self, workload: str, models: Mapping[str, LanguageModel]) -> dict[str, float]:
        """The median time of models, of this vocabulary, taken in turn; raises `Busy`."""
        passes = {name: WORKLOADS[workload](model, self.shapes) for name, model in models.items()}
        times = time_in_turn(
            passes, rounds=self.rounds, patience_s=self.patience_s, device=self.shapes.device
        )
        return {name: float(np.median(ms_N)) for name, ms_N in times.items()}

    def table(
        self, workload: str, wholes: Sequence[Layout], held_out: Sequence[Layout] = ()
    ) -> WorkloadTimes:
        """Time stacks of each candidate and whole layouts, all in turn, and fit the correction."""
        stacks = {candidate.label: (candidate,) * self.slots for candidate in self.candidates}
        named = {str(number): layout for number, layout in enumerate([*wholes, *held_out])}
        times = self.times_ms(workload, {"rest": (), **stacks, **named})
        rest_ms = times["rest"]
        by_label_ms = {label: max(0.0, (times[label] - rest_ms) / self.slots) for label in stacks}
        measured_N = np.array([times[name] for name in named])
        summed_N = np.array(
            [rest_ms + sum(by_label_ms[slot.label] for slot in one) for one in named.values()]
        )
        fitted = len(wholes)
        floor_ms, scale = fit_correction(summed_N[:fitted], measured_N[:fitted])
        both = compared([*named.values()], measured_N, floor_ms + scale * summed_N)
        return WorkloadTimes(
            rest_ms=rest_ms,
            by_label_ms=by_label_ms,
            floor_ms=floor_ms,
            scale=scale,
            wholes=both[:fitted],
            held_out=both[fitted:],
        )


def compared(
    layouts: Sequence[Layout], measured: Iterable[float], predicted: Iterable[float]
) -> tuple[Whole, ...]:
    """Whole layouts with their measured and their predicted times."""
    return tuple(
        Whole(layout=layout_letters(layout), measured_ms=float(one), predicted_ms=float(other))
        for layout, one, other in zip(layouts, measured, predicted, strict=True)
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
