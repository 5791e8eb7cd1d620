"""The arms of a comparison that no single command of Parnas makes: layouts, rates, choices, rows.

A group is a budget: networks among which the best by validation is chosen, and arms with fresh
seeds. An arm without a layout trains the group's choice. Rows of all groups stand in one file.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from pydantic import Field, ValidationError, model_validator

from benchmarks.layout_rows import FIGURES, Row
from utils.strict_yaml import YamlError, read_text, read_yaml
from utils.validation import Section, dotted, explain

COLUMNS = ("layout", "settings", "lr", "seed", *FIGURES)
RATE = "retrain.optimiser.lr"
Settings = dict[str, int | float | str]


class Arm(Section):
    """A network as it is trained with fresh seeds; without a layout it is the group's choice."""

    name: str
    layout: str | None = None
    settings: Settings = Field(default_factory=dict)
    seeds: tuple[int, ...]


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
    of them that has no more blocks than it has, or of the shallowest. `to_come` names arms of
    planned comparisons whose layouts are not known yet.
    """

    rates: tuple[float, ...]
    rate_seed: int
    rate_layouts: tuple[str, ...]
    groups: tuple[Group, ...]
    comparisons: tuple[Comparison, ...] = ()
    to_come: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_are_those_of_arms(self) -> "Arms":
        names = [*(arm.name for group in self.groups for arm in group.arms), *self.to_come]
        if len(set(names)) < len(names):
            raise ValueError(f"names of arms must differ, found {names}")
        compared = {name for one in self.comparisons for name in (one.arm, *one.against)}
        if unknown := sorted(compared - {*names}):
            raise ValueError(f"comparisons name {unknown}, which are no arms; known: {names}")
        return self

    def rate_layout(self, layout: str) -> str:
        """The layout whose rate a network takes."""
        by_depth = sorted(self.rate_layouts, key=blocks)
        return ([by_depth[0]] + [one for one in by_depth if blocks(one) <= blocks(layout)])[-1]


def blocks(layout: str) -> int:
    """How many blocks add something."""
    return len(layout.replace(" ", "").replace("i", ""))


def arms_of(path: Path) -> Arms:
    """The arms of a file.

    Raises:
        ValueError: it holds something else; one line names the first key that is wrong.
    """
    try:
        document = read_yaml(read_text(path))
    except YamlError as error:
        raise ValueError(f"{path}:{error.line}: {error.text}") from None
    for problem in document.problems:
        raise ValueError(f"{path}:{problem.line}: {dotted(problem.key)}: {problem.text}")
    try:
        return Arms.model_validate(document.value)
    except ValidationError as error:
        key, words = explain(error.errors(), Arms, document.value)[0]
        raise ValueError(f"{path}: {f'{dotted(key)}: ' if key else ''}{words}") from None


def identity(row: Row) -> tuple[str, ...]:
    """What one training is; arms of other names may share it."""
    return tuple(row[name] for name in ("layout", "settings", "lr", "seed"))


def rows_of_network(layout: str, settings: Settings, rows: Sequence[Row]) -> Iterator[Row]:
    """The trainings of a network as it is trained, at all rates."""
    words = settings_words(settings)
    return (row for row in rows if (row["layout"], row["settings"]) == (layout, words))


def settings_words(settings: Settings) -> str:
    """Settings as a row has them."""
    return json.dumps(settings, sort_keys=True)


def rate_of(arms: Arms, layout: str, rows: Sequence[Row]) -> float:
    """The learning rate of a network: that of least validation nats of its rate layout.

    Raises:
        ValueError: not all rates are trained.
    """
    tried = arms.rate_layout(layout)
    nats = {
        float(row["lr"]): float(row["valid_nats"])
        for row in rows_of_network(tried, {}, rows)
        if int(row["seed"]) == arms.rate_seed and float(row["lr"]) in arms.rates
    }
    if len(nats) < len(arms.rates):
        raise ValueError(f"{tried}: {len(nats)} of {len(arms.rates)} rates are trained")
    return min(nats, key=nats.__getitem__)


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


def layout_of(arms: Arms, group: Group, arm: Arm, rows: Sequence[Row]) -> str | None:
    """The layout of an arm; None where it waits for its group's choice."""
    return arm.layout if arm.layout is not None else chosen(arms, group, rows)


def arms_by_name(arms: Arms, rows: Sequence[Row]) -> dict[str, tuple[Arm, str | None]]:
    """Every arm with its layout; None where it waits for its group's choice."""
    return {
        arm.name: (arm, layout_of(arms, group, arm, rows))
        for group in arms.groups
        for arm in group.arms
    }
