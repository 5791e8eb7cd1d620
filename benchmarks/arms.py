"""The arms of a comparison that no single command of Parnas makes: what is chosen and trained.

A group is a budget: networks among which the best by validation is chosen, and arms with fresh
seeds. An arm without a layout trains the group's choice. Rows of all groups stand in one file.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from pydantic import Field, model_validator

from benchmarks.layout_rows import FIGURES, Row
from utils.strict_yaml import read_text, read_yaml
from utils.validation import Section

COLUMNS = ("layout", "settings", "lr", "seed", *FIGURES)
RATE = "retrain.optimiser.lr"
Settings = dict[str, bool | int | float | str]
# A network, how it is trained, its rate and its seed.
Training = tuple[str, Settings, float, int]


class Arm(Section):
    """A network as it is trained with fresh seeds; without a layout it is the group's choice."""

    name: str
    layout: str | None = None
    settings: Settings = Field(default_factory=dict)
    seeds: tuple[int, ...]


class Option(Section):
    """A way to train that has rates of its own: `layouts` are trained with all of them."""

    name: str
    settings: Settings
    layouts: tuple[str, ...]


class Group(Section):
    """Networks to choose among, and arms.

    All of `among` are trained with the first of `choice_seeds`, the best `again` with the others
    too; the choice has the least mean validation nats of these.
    """

    name: str
    among: tuple[str, ...] = ()
    choice_seeds: tuple[int, ...] = ()
    again: int = 4
    arms: tuple[Arm, ...] = ()

    @model_validator(mode="after")
    def _choice_is_possible(self) -> "Group":
        if bool(self.among) != bool(self.choice_seeds):
            raise ValueError(f"{self.name}: among and choice_seeds go together")
        if not self.among and any(arm.layout is None for arm in self.arms):
            raise ValueError(f"{self.name}: an arm without a layout needs networks to choose among")
        return self


class Comparison(Section):
    """An arm against another, or against the mean of several, each of which counts once."""

    arm: str
    against: tuple[str, ...]
    primary: bool = False
    margin_nats: float | None = None  # not worse by so much is enough


class Arms(Section):
    """The file of arms.

    Each of `rate_layouts` is trained with all `rates`. A network takes the best rate of the deepest
    of them that has no more blocks than it has, or of the shallowest; one with the settings of an
    option takes that of the option's layouts.
    """

    rates: tuple[float, ...]
    rate_seed: int
    rate_layouts: tuple[str, ...]
    options: tuple[Option, ...] = ()
    groups: tuple[Group, ...]
    comparisons: tuple[Comparison, ...] = ()

    @model_validator(mode="after")
    def _names_are_those_of_arms(self) -> "Arms":
        names = [arm.name for group in self.groups for arm in group.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"names of arms must differ, found {names}")
        compared = {name for one in self.comparisons for name in (one.arm, *one.against)}
        if unknown := sorted(compared - {*names}):
            raise ValueError(f"comparisons name {unknown}, which are no arms; known: {names}")
        return self

    def tried(self, layout: str, settings: Settings) -> tuple[str, Settings]:
        """The network and the settings whose best rate a network takes."""
        of_option = [one.layouts for one in self.options if one.settings == settings]
        layouts, settings = (of_option[0], settings) if of_option else (self.rate_layouts, {})
        by_depth = sorted(layouts, key=blocks)
        deep_enough = [one for one in by_depth if blocks(one) <= blocks(layout)]
        return ([by_depth[0], *deep_enough])[-1], settings


def blocks(layout: str) -> int:
    """How many blocks add something."""
    return len(layout.replace(" ", "").replace("i", ""))


def arms_of(path: Path) -> Arms:
    """The arms of a file; ValueError where it holds something else."""
    document = read_yaml(read_text(path))
    if document.problems:
        raise ValueError(f"{path}: {document.problems[0]}")
    return Arms.model_validate(document.value)


def rows_of_network(layout: str, settings: Settings, rows: Sequence[Row]) -> Iterator[Row]:
    """The trainings of a network as it is trained, at all rates."""
    words = settings_words(settings)
    return (row for row in rows if (row["layout"], row["settings"]) == (layout, words))


def settings_words(settings: Settings) -> str:
    """Settings as a row has them."""
    return json.dumps(settings, sort_keys=True)


def rate_of(
    arms: Arms, layout: str, rows: Sequence[Row], settings: Settings | None = None
) -> float:
    """The learning rate of a network: that of least validation nats of what is tried for it.

    Raises:
        ValueError: not all rates are trained.
    """
    nats = nats_by_rate(arms, *(tried := arms.tried(layout, settings or {})), rows)
    if len(nats) < len(arms.rates):
        raise ValueError(f"{tried[0]}: {len(nats)} of {len(arms.rates)} rates are trained")
    return min(nats, key=nats.__getitem__)


def nats_by_rate(
    arms: Arms, layout: str, settings: Settings, rows: Sequence[Row]
) -> dict[float, float]:
    """Validation nats of a network by rate, of those trained so far."""
    return {
        float(row["lr"]): float(row["valid_nats"])
        for row in rows_of_network(layout, settings, rows)
        if int(row["seed"]) == arms.rate_seed and float(row["lr"]) in arms.rates
    }


def choice_nats(arms: Arms, group: Group, rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """Validation nats of a group's networks by the seeds that choose; networks without any too."""
    return {
        layout: {
            int(row["seed"]): float(row["valid_nats"])
            for row in rows_of_network(layout, {}, rows)
            if int(row["seed"]) in group.choice_seeds
            and float(row["lr"]) == rate_of(arms, layout, rows)
        }
        for layout in group.among
    }


def best_once(arms: Arms, group: Group, rows: Sequence[Row]) -> list[str]:
    """The networks that are trained with the other choosing seeds too, the best first."""
    first = group.choice_seeds[0]
    nats = {
        layout: of[first] for layout, of in choice_nats(arms, group, rows).items() if first in of
    }
    return sorted(nats, key=lambda layout: (nats[layout], layout))[: group.again]


def chosen(arms: Arms, group: Group, rows: Sequence[Row]) -> str | None:
    """The group's choice; None while trainings that choose are missing."""
    nats = choice_nats(arms, group, rows)
    if any(group.choice_seeds[0] not in of for of in nats.values()):
        return None
    best = best_once(arms, group, rows)
    if any(len(nats[layout]) < len(group.choice_seeds) for layout in best):
        return None
    return min(best, key=lambda layout: (fmean(nats[layout].values()), layout))


def arms_by_name(arms: Arms, rows: Sequence[Row]) -> dict[str, tuple[Arm, str | None]]:
    """Every arm with its layout; None where it waits for its group's choice."""
    return {
        arm.name: (arm, arm.layout or chosen(arms, group, rows))
        for group in arms.groups
        for arm in group.arms
    }


def next_trainings(arms: Arms, rows: Sequence[Row]) -> list[Training]:
    """The first stage of which something is missing: what it lacks, in its order."""
    # Later stages cannot be asked for before earlier ones are trained.
    missing = (_missing(stage, rows) for stage in _stages(arms, rows))
    return next(filter(None, missing), [])


def _stages(arms: Arms, rows: Sequence[Row]) -> Iterator[list[Training]]:
    """The rates; then of each group what chooses, once and again, and its arms."""
    tried = [(layout, Settings()) for layout in arms.rate_layouts]
    tried += [(layout, one.settings) for one in arms.options for layout in one.layouts]
    yield [(*one, rate, arms.rate_seed) for one in tried for rate in arms.rates]

    def with_rate(layout: str, settings: Settings, seed: int) -> Training:
        return layout, settings, rate_of(arms, layout, rows, settings), seed

    for group in arms.groups:
        if group.among:
            first, *others = group.choice_seeds
            yield [with_rate(layout, {}, first) for layout in group.among]
            again = best_once(arms, group, rows)
            yield [with_rate(layout, {}, seed) for seed in others for layout in again]
        yield [
            with_rate(layout, arm.settings, seed)
            for arm in group.arms
            if (layout := arm.layout or chosen(arms, group, rows)) is not None
            for seed in arm.seeds
        ]


def _missing(stage: Sequence[Training], rows: Sequence[Row]) -> list[Training]:
    known = {_identity(row) for row in rows}
    # Arms of other names may share a training.
    wanted = {_identity(row_of(training)): training for training in stage}
    return [training for one, training in wanted.items() if one not in known]


def _identity(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in ("layout", "settings", "lr", "seed"))


def row_of(training: Training) -> Row:
    """The row of a training before it has figures."""
    layout, settings, rate, seed = training
    return {
        "layout": layout,
        "settings": settings_words(settings),
        "lr": str(rate),
        "seed": str(seed),
    }
