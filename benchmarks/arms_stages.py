"""What of an arms' file is to be trained next: the rates, then group by group choices and arms."""

import json
from collections.abc import Iterator, Sequence

from benchmarks.arms import (
    Arms,
    Settings,
    best_once,
    identity,
    layout_of,
    rate_of,
)
from benchmarks.layout_rows import Row

# A network, how it is trained, its rate and its seed.
Training = tuple[str, Settings, float, int]


def next_trainings(arms: Arms, rows: Sequence[Row]) -> list[Training]:
    """The first stage of which something is missing: what it lacks, in its order."""
    # Later stages cannot be asked for before earlier ones are trained.
    missing = (_missing(stage, rows) for stage in _stages(arms, rows))
    return next(filter(None, missing), [])


def _stages(arms: Arms, rows: Sequence[Row]) -> Iterator[list[Training]]:
    """The rates; then of each group what chooses, once and again, and its arms."""
    grid = ((layout, rate) for layout in arms.rate_layouts for rate in arms.rates)
    yield [(layout, {}, rate, arms.rate_seed) for layout, rate in grid]

    def with_rate(layout: str, settings: Settings, seed: int) -> Training:
        return layout, settings, rate_of(arms, layout, rows), seed

    for group in arms.groups:
        if group.among:
            first, *others = group.choice_seeds
            yield [with_rate(layout, {}, first) for layout in group.among]
            again = best_once(arms, group, rows)
            yield [with_rate(layout, {}, seed) for seed in others for layout in again]
        yield [
            with_rate(layout, arm.settings, seed)
            for arm in group.arms
            if (layout := layout_of(arms, group, arm, rows)) is not None
            for seed in arm.seeds
        ]


def _missing(stage: Sequence[Training], rows: Sequence[Row]) -> list[Training]:
    known = {identity(row) for row in rows}
    missing = list[Training]()
    for training in stage:
        if (one := identity(row_of(training))) not in known:
            known.add(one)
            missing.append(training)
    return missing


def row_of(training: Training) -> Row:
    """The row of a training before it has figures."""
    layout, settings, rate, seed = training
    return {
        "layout": layout,
        "settings": json.dumps(settings, sort_keys=True),
        "lr": str(rate),
        "seed": str(seed),
    }
