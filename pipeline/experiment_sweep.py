"""Whether every point of a sweep's space is an experiment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpo.config import SweepConfig
from hpo.space import Space, space_faults
from utils.validation import Said, dotted, plain_types, show

if TYPE_CHECKING:
    from data.config import DataConfig
    from pipeline.experiment import Experiment

DRAWS = 200
MOST_LINES = 5
Values = Mapping[str, Any]
Place = tuple[str | int, ...]
# Where below a key, and in which words.
Wrong = tuple[Place, str]
Drawn = tuple[dict[str, Any], list[str]]
# The experiment with other values at some keys and without others, or what is wrong with it.
Change = Callable[[Values, Sequence[str]], "tuple[Experiment | None, list[Said]]"]

_NOT_SWEPT = {
    "run.seed": "sweep.seeds has the seeds of the trials",
    "run": "changes where or how often, not what is learned",
    "compare": "trials are not compared with opponents",
    "sweep": "a sweep cannot change itself",
}
_SWEPT_OF_RUN = ("run.precision", "run.micro_batches")
_NOT_SET = ("run.seed", "compare", "sweep")
_VERBS = {"space": "swept", "set": "set"}
# Keys of `data` that change how a model learns and nothing of how it is scored.
_LEARNED_FROM = ("batch", "random_offset")


def number_kinds(schema: type[Experiment], keys: Iterable[str]) -> dict[str, type]:
    """`int` for each key that takes integers only, `float` for one that takes any number."""
    kinds: dict[str, type] = {}
    for key in keys:
        types = plain_types(schema, tuple(key.split(".")))
        if types & {int, float}:
            kinds[key] = float if float in types else int
    return kinds


def sweep_problems(experiment: Experiment, change: Change) -> list[Said]:
    """All that is wrong with the sweep of an experiment that is itself valid.

    The ends of each range and each choice are tried, then random draws of the whole space, because
    settings that are right alone may contradict each other.
    """
    sweep = experiment.sweep
    if sweep is None:
        return []
    kinds = number_kinds(type(experiment), sweep.space)
    said: list[Said] = list(_places(sweep, experiment))
    said += [
        (("sweep", "space", key, *at), words) for key, at, words in space_faults(sweep.space, kinds)
    ]
    if said:
        return list(dict(reversed(said)).items())[::-1]  # one for each key
    space = Space(sweep.space, kinds)
    if said := _endless(space) if sweep.sampler.kind == "grid" else []:
        return said
    return _alone(space, sweep, change) or _together(space, sweep, change)


def _places(sweep: SweepConfig, experiment: Experiment) -> Iterator[Said]:
    """Keys that no sweep may change, or that are given twice."""
    for section, keys in (("space", sweep.space), ("set", sweep.set)):
        for key in keys:
            words = _forbidden(section, key, type(experiment)) or _scored(key, experiment.data)
            if words:
                yield ("sweep", section, key), words.replace("VERB", _VERBS[section])
            for other in (*sweep.space, *sweep.set):
                if key.startswith(f"{other}."):
                    yield ("sweep", section, key), f"is a part of {other}, which is given as well"
            if section == "set" and key in sweep.space:
                yield ("sweep", "set", key), "is in sweep.space as well; leave one out"


def _forbidden(section: str, key: str, schema: type[Experiment]) -> str | None:
    if key in schema.model_fields:
        return "is a whole section; name a key in it"
    for start, why in _NOT_SWEPT.items():
        if key == start or key.startswith(f"{start}."):
            free = key in _SWEPT_OF_RUN if section == "space" else start not in _NOT_SET
            return None if free else f"cannot be VERB: {why}"
    return None


def _scored(key: str, data: DataConfig) -> str | None:
    """Why trials with another value of a key of `data` would not be scored alike.

    A sweep that may choose its validation text finds the easiest one.
    """
    section, _, name = key.partition(".")
    name = name.partition(".")[0]
    if section != "data" or name not in type(data).model_fields or name in _LEARNED_FROM:
        return None
    if name == "tokenizer":
        cuts = [cut for cut in ("validation_tokens", "test_tokens") if getattr(data, cut)]
        why = "so many tokens of another tokenizer are another text; give null for both cuts, "
        why += "data.validation_tokens and data.test_tokens"
        return f"cannot be VERB with data.{cuts[0]}: {why}" if cuts else None
    if name == "segment" and data.evaluation_segment:
        return None
    if name == "segment":
        return (
            "cannot be VERB: it is data.evaluation_segment as well, the context in which tokens "
            f"are scored; give data.evaluation_segment: {data.segment}"
        )
    return (
        "cannot be VERB: it decides which text is scored or in what context, and only results on "
        f"the same can be compared; give data.{name} outside of sweep"
    )


def _tried(sweep: SweepConfig, key: str) -> list[tuple[Place, Any]]:
    """The choices, the ends of the range or the set value, with their places below the key."""
    if key not in sweep.space:
        return [((), sweep.set[key])]
    parameter = sweep.space[key]
    if parameter.choices is None:
        return [(("low",), parameter.low), (("high",), parameter.high)]
    return [(("choices", place), choice) for place, choice in enumerate(parameter.choices)]


def _own(change: Change, key: str, values: Values) -> Wrong | None:
    """What these values make wrong at the key itself or below it."""
    path = tuple(key.split("."))
    _, said = change(values, ())
    for place, words in said:
        if place == path[: len(place)] or path == place[: len(path)]:
            return place[len(path) :], words
    return None


def _endless(space: Space) -> list[Said]:
    said: list[Said] = [
        (("sweep", "space", key), "has no finite number of values; a grid needs a step, or choices")
        for key in space.keys
        if space.is_continuous(key)
    ]
    if not said:
        try:
            space.grid()
        except ValueError as error:
            said = [(("sweep", "space"), str(error))]
    return said


def _alone(space: Space, sweep: SweepConfig, change: Change) -> list[Said]:
    """Ends, choices and values of `set` that are wrong whatever the other keys are."""
    suspects: dict[str, dict[Place, Wrong]] = {}
    for key in (*sweep.space, *sweep.set):
        needs = space.needs(key, random.Random(0)) if key in sweep.space else {}
        tries = [(at, _own(change, key, {**needs, key: value})) for at, value in _tried(sweep, key)]
        suspects[key] = {at: wrong for at, wrong in tries if wrong}
    # What is always wrong, as an unknown key is, must not make the others look so.
    lost = [key for key, wrong in suspects.items() if len(wrong) == len(_tried(sweep, key))]
    said: list[Said] = []
    for key, wrong in suspects.items():
        draws = _draws_with(space, sweep, key)
        if not draws:
            said.append((("sweep", "space", key, "when"), "never holds: it excludes itself"))
            continue
        clean = [({k: v for k, v in values.items() if k not in lost}, w) for values, w in draws]
        guilty = {
            at: wrong[at]
            for at, value in _tried(sweep, key)
            if at in wrong and not _fits_some([*draws, *clean], key, value, change)
        }
        said += _placed(sweep, key, guilty)
    return said


def _draws_with(space: Space, sweep: SweepConfig, key: str) -> list[Drawn]:
    """Settings of trials in which a key is active, and the keys that they leave out."""
    source = random.Random(0)
    in_space = key in sweep.space
    draws = []
    for _ in range(30):
        values = space.draw(source, space.needs(key, source) if in_space else {})
        if key in values or not in_space:
            draws.append(({**sweep.set, **values}, space.inactive(values)))
    return draws


def _fits_some(draws: Sequence[Drawn], key: str, value: Any, change: Change) -> bool:
    """Whether a value of a key is right in one of the draws."""
    for values, without in draws:
        experiment, said = change({**values, key: value}, without)
        if experiment is not None and not said:
            return True
    return False


def _placed(sweep: SweepConfig, key: str, guilty: Mapping[Place, Wrong]) -> list[Said]:
    """One line for each place; one for the key where all of several say the same."""
    where = ("sweep", "space" if key in sweep.space else "set", key)
    wrongs = list(guilty.values())
    if 1 < len(wrongs) == len(_tried(sweep, key)) and all(each == wrongs[0] for each in wrongs):
        guilty = {(): wrongs[0]}
    return [((*where, *at, *below), words) for at, (below, words) in guilty.items()]


def _together(space: Space, sweep: SweepConfig, change: Change) -> list[Said]:
    """Combinations that the schema refuses, each shrunk to the values that matter."""
    source = random.Random(0)
    said: dict[tuple[Any, ...], Said] = {}
    for _ in range(DRAWS):
        drawn = space.draw(source)
        values = {**sweep.set, **drawn}
        without = space.inactive(drawn)
        _, wrong = change(values, without)
        for place, words in wrong:
            guilty = _shrink(values, without, place, change)
            known = (place, *guilty)
            if known not in said and len(said) < MOST_LINES:
                said[known] = _combination(place, words, guilty, sweep)
    return list(said.values())


def _shrink(values: Values, without: Sequence[str], place: Any, change: Change) -> dict[str, Any]:
    """The values without which nothing is wrong at this place, and the one of the place itself."""
    left = dict(values)
    for key in values:
        if tuple(key.split(".")) == place:
            continue
        fewer = {name: value for name, value in left.items() if name != key}
        if any(there == place for there, _ in change(fewer, without)[1]):
            left = fewer
    return left


def _combination(place: Any, words: str, guilty: Values, sweep: SweepConfig) -> Said:
    where = dotted(place)
    shown = ", ".join(f"{key}: {_short(value)}" for key, value in guilty.items())
    at = next((key for key in (where, *guilty) if key in sweep.space), None)
    key = ("sweep", "space", at) if at else ("sweep", "set", *list(guilty)[:1])
    if where in sweep.space:
        remedy = "'when' can leave the key out there"
    else:
        remedy = f"change the values, or sweep {where} as well, with 'when'"
    reason = words if where == at else f"{where}: {words}"
    return key, f"with {shown} the experiment is refused: {reason}; {remedy}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else show(value)
