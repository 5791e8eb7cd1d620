"""Within a budget of times, what a method would train is measured whole before it is trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from model import Layout, TimedCost, layout_letters
from nas.costs.budget import Budget
from nas.costs.table import MOST_MS
from nas.costs.workloads import WORKLOADS
from nas.derivation import DERIVATIONS, Derived, Request, Trial, blocks_of
from nas.derivation.base import NoLayout
from pipeline.context import RunPlan
from pipeline.costs import (
    REFERENCE,
    Measured,
    measure_whole,
    measurement_of,
    over,
    over_text,
    table_key,
)
from utils.files import read_object, write_whole
from utils.screen import say
from utils.validation import Section, dotted, explain

FILE = "whole_times.json"
_REMEDY = "remove it, and layouts are measured again"
_SHOWN = 3
_Ms = Annotated[float, Field(gt=0, le=MOST_MS)]


class _Whole(Section):
    """A layout that stands for its blocks, and by workload its time and the reference's."""

    layout: str = Field(max_length=20_000)
    ms: dict[str, tuple[_Ms, _Ms]]


class _File(Section):
    """What the run has measured, by blocks; `key` is all that it holds for."""

    version: Literal[1] = 1
    key: dict[str, Any]
    by_blocks: dict[str, _Whole] = Field(default_factory=dict)


class _Over(Exception):
    """No error: the method is asked again without these blocks."""

    def __init__(self, excess: Mapping[str, Mapping[str, float]]) -> None:
        self.excess = excess


@dataclass(frozen=True)
class WholeTimes:
    """Times of whole layouts beside the reference, measured once for the same blocks and kept.

    Blocks in another order take the same time; measured apart they would differ by chance, and that
    would choose among orders. RUN/whole_times.json keeps them, so that a derivation that is started
    again answers the same.
    """

    plan: RunPlan
    budget: Budget

    def over(self, layouts: Sequence[Layout]) -> dict[str, dict[str, float]]:
        """By blocks the limits that are exceeded, and by how many times; measures what is new.

        Raises:
            ValueError: the file is damaged, or the machine is busy.
        """
        if not self._timed:
            return {}
        by_blocks = {blocks_of(layout): layout for layout in layouts}
        self._measure([*by_blocks.values()])
        shares = {name: self._measured(one).share(one) for name, one in by_blocks.items()}
        return {name: excess for name, share in shares.items() if (excess := over(share))}

    def costs(self, layout: Layout) -> tuple[TimedCost, ...]:
        """What the blocks of a layout took, beside the reference and the limit."""
        return self._measured(layout).costs(layout) if self._timed else ()

    @property
    def _timed(self) -> list[str]:
        return [name for name in self.budget.amounts if name in WORKLOADS]

    @property
    def _path(self) -> Path:
        return self.plan.run_dir / FILE

    @cached_property
    def _key(self) -> dict[str, Any]:
        return {**table_key(self.plan), "reference": layout_letters(self.budget.reference)}

    @cached_property
    def _file(self) -> _File:
        if not self._path.exists():
            return _File(key=self._key)
        content = read_object(self._path, _REMEDY)
        try:
            file = _File.model_validate(content)
        except ValidationError as error:
            key, words = explain(error.errors(), _File, content)[0]
            raise ValueError(f"{self._path}: {dotted(key)}: {words}; {_REMEDY}") from None
        if file.key != self._key:
            say(f"{self._path}: was measured elsewhere or otherwise; layouts are measured again")
            return _File(key=self._key)
        return file

    def _measure(self, layouts: Sequence[Layout]) -> None:
        missing = [one for one in layouts if not self._known(one)]
        if not missing:
            return
        times_ms = measure_whole(self.plan, self.budget, missing).times_ms
        for layout in missing:
            letters = layout_letters(layout)
            ms = {name: (of[letters], of[REFERENCE]) for name, of in times_ms.items()}
            kept = self._file.by_blocks.get(blocks_of(layout))
            self._file.by_blocks[blocks_of(layout)] = _Whole(
                layout=letters, ms={**(kept.ms if kept else {}), **ms}
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, self._file.model_dump_json(indent=1) + "\n")

    def _known(self, layout: Layout) -> bool:
        whole = self._file.by_blocks.get(blocks_of(layout))
        return whole is not None and set(self._timed) <= whole.ms.keys()

    def _measured(self, layout: Layout) -> Measured:
        """As if this layout had been measured, which has the same blocks."""
        whole, letters = self._file.by_blocks[blocks_of(layout)], layout_letters(layout)
        shapes = measurement_of(self.plan).shapes
        times_ms = {
            name: {letters: ms, REFERENCE: reference_ms}
            for name, (ms, reference_ms) in whole.ms.items()
            if name in self._timed
        }
        return Measured(self.budget, times_ms, {name: shapes.key(name) for name in times_ms})


class _Progress:
    """Says what a method says; when it is asked again, only from what is new on."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._is_told_again, self._last_line = say, False, ""

    def say(self, line: str) -> None:
        if self._is_told_again:
            self._last_line = line
        else:
            self._say(line)

    def begin_again(self) -> None:
        self._is_told_again, self._last_line = True, ""

    def tell_from_here(self) -> None:
        if self._last_line:
            self._say(self._last_line)
        self._is_told_again, self._last_line = False, ""


def trained_within_budget(
    plan: RunPlan, request: Request, budget: Budget, factors: Mapping[str, float]
) -> tuple[Derived, tuple[TimedCost, ...]]:
    """The answer of a method that trains, all of whose trainings keep the budget when measured.

    Where something that it would train is over, it is asked again without those blocks, so that
    rules name the largest networks that fit; what is trained already is not trained again.

    Raises:
        NoLayout: no layout is predicted to keep the budget.
        ValueError: none keeps it when it is measured.
    """
    assert request.train is not None
    train, times, progress = request.train, WholeTimes(plan, budget), _Progress(request.say)
    limits = (*request.limits, *budget.limits(factors))
    refused = dict[str, Mapping[str, float]]()
    nats_by_trial = dict[Trial, float]()

    def train_within(trials: Sequence[Trial]) -> Sequence[float]:
        if missing := [trial for trial in trials if trial not in nats_by_trial]:
            progress.tell_from_here()
            if excess := times.over([trial.layout for trial in missing]):
                raise _Over(excess)
            nats_by_trial.update(zip(missing, train(missing), strict=True))
        return [nats_by_trial[trial] for trial in trials]

    asked = replace(request, limits=limits, train=train_within, say=progress.say)
    while True:
        try:
            derived = DERIVATIONS[request.config.method](replace(asked, refused=frozenset(refused)))
        except _Over as over_budget:
            refused |= over_budget.excess
            say(_refused_words(over_budget.excess))
            progress.begin_again()
        except NoLayout:
            if not refused:
                raise
            least = min(refused.values(), key=lambda of: max(of.values()))
            raise ValueError(
                "derive.budget: no layout that would be trained was within it when it was measured "
                f"(the least over by {over_text(least)}); give a larger one, or measure the table "
                "again on a quiet machine (tools.latency)"
            ) from None
        else:
            return derived, times.costs(derived.layout)


def _refused_words(excess: Mapping[str, Mapping[str, float]]) -> str:
    shown = [f"{blocks} ({over_text(of)})" for blocks, of in excess.items()]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"over the budget when measured, so not trained: {'; '.join(shown[:_SHOWN])}{more}"
