"""Checks that every point of a sweep's space is an experiment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpo.config import SweepConfig
from hpo.samplers import first_pruned_step
from hpo.space import Space
from nas.derivation import RULES, check_method, method_of
from nas.derivation.base import Request
from nas.derivation.config import DeriveConfig
from utils.validation import Said, dotted, plain_types, show

if TYPE_CHECKING:
    from data.config import DataConfig
    from pipeline.experiment import Experiment

DRAWS = 200
_DRAWS_OF_A_VALUE = 12
_MOST_LINES = 5
Values = Mapping[str, Any]
KeyPath = tuple[str | int, ...]
# The experiment with other values at some keys and without others, or what is wrong with it.
Change = Callable[[Values, Sequence[str]], "tuple[Experiment | None, list[Said]]"]

_NOT_SWEPT = {
    "run.seed": "sweep.seeds has the seeds of the trials",
    "run": "changes where or how often, not what is learned",
    "compare": "trials are not compared with opponents",
    "sweep": "a sweep cannot change itself",
}
# What trials do without, since nobody looks at each of them.
_OF_NO_TRIAL = ("run.figures", "run.trackers", "derive.gap")
_SWEPT_OF_RUN = ("run.precision", "run.micro_batches")
_NOT_SET = ("run.seed", "compare", "sweep")
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

    def trial(values: Values, without: Sequence[str]) -> tuple[Experiment | None, list[Said]]:
        changed, said = change({**sweep.set, **values}, without)
        if changed is not None and not said:
            said = [*_late_problems(changed, sweep)]
        return changed, said

    space = Space(sweep.space, number_kinds(type(experiment), sweep.space))
    errors = [*_places(sweep, experiment)]
    errors += [(("sweep", "space", *at), words) for at, words in space.faults()]
    if errors:
        return list(dict(reversed(errors)).items())[::-1]  # one for each key
    if sweep.sampler.kind == "grid" and (errors := _endless(space)):
        return errors
    return _alone(space, sweep, trial) or _together(space, sweep, trial)


def _late_problems(experiment: Experiment, sweep: SweepConfig) -> Iterator[Said]:
    """Problems that would let a trial fail, or never be pruned, only after its whole search."""
    learns, derive = experiment.search.alpha_learns, experiment.derive
    try:
        check_method(derive.method, alpha_learned=learns)
        # A random layout may need costs, which only a text gives.
        if derive.method in RULES and derive.method != "random":
            candidates = experiment.model.completed_candidates()
            method_of(derive.method)(Request(derive, candidates, experiment.model.slots, _no_cost))
    except ValueError as error:
        yield ("derive", "method"), "; ".join(str(error).splitlines())
    why = "with search.estimator spos alpha does not move, and no net of pi's is validated"
    if not learns and "onehot" in sweep.objectives:
        yield ("sweep", "objectives"), f"onehot: {why}; take retrained"
    if "onehot" in sweep.objectives and (why_other := _derives_another(derive)):
        yield ("sweep", "objectives"), f"onehot: it scores argmax of pi, and {why_other}"
    if not learns and sweep.pruner.kind not in ("none", "wilcoxon"):
        yield ("sweep", "pruner"), f"{sweep.pruner.kind}: {why}; take none or wilcoxon"
    steps = experiment.search.steps
    least = first_pruned_step(sweep.pruner, experiment.run.validate_every)
    if steps is not None and least > steps:
        yield (
            ("sweep", "pruner"),
            f"{sweep.pruner.kind}: stops no trial before search step {least}, and a search has "
            f"{steps} (search.steps); lower warmup, min_steps or run.validate_every",
        )


def _derives_another(derive: DeriveConfig) -> str | None:
    """Reason why a derivation may choose another layout than argmax of one search's pi does."""
    remedy = "take retrained, or leave it out"
    if derive.method != "argmax":
        return f"derive.method is {derive.method}; {remedy}"
    if derive.budget.amounts:
        return f"derive.budget may forbid that layout; {remedy}"
    return f"derive.searches averages several; {remedy}" if derive.searches else None


def _no_cost(layout: object) -> float:
    raise AssertionError(layout)


def _places(sweep: SweepConfig, experiment: Experiment) -> Iterator[Said]:
    """Keys that no sweep may change, or that are given twice."""
    for section, keys in (("space", sweep.space), ("set", sweep.set)):
        for key in keys:
            place = ("sweep", section, key)
            words = _forbidden(sweep, section, key, type(experiment))
            if words := words or why_not_comparable(key, experiment.data):
                yield place, words.replace("VERB", "swept" if section == "space" else "set")
            for other in (*sweep.space, *sweep.set):
                if key.startswith(f"{other}."):
                    yield place, f"is a part of {other}, which is given as well"
            if section == "set" and key in sweep.space:
                yield place, "is in sweep.space as well; leave one out"


def _forbidden(sweep: SweepConfig, section: str, key: str, schema: type[Experiment]) -> str | None:
    if key in schema.model_fields:
        return "is a whole section; name a key in it"
    if section == "space" and key.startswith("retrain.") and "retrained" not in sweep.objectives:
        return "has no effect: without the objective retrained nothing is retrained"
    if key in _OF_NO_TRIAL:
        return "has no effect: trials draw no figures, use no tracker and measure no gap"
    for start, why in _NOT_SWEPT.items():
        if key == start or key.startswith(f"{start}."):
            free = key in _SWEPT_OF_RUN if section == "space" else start not in _NOT_SET
            return None if free else f"cannot be VERB: {why}"
    return None


def why_not_comparable(key: str, data: DataConfig) -> str | None:
    """Reason why runs with another value of a key of `data` would not be scored alike.

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


def _endless(space: Space) -> list[Said]:
    errors: list[Said] = [
        (("sweep", "space", key), "has no finite number of values; a grid needs a step, or choices")
        for key in space.keys
        if space.is_continuous(key)
    ]
    if not errors:
        try:
            space.grid()
        except ValueError as error:
            errors = [(("sweep", "space"), str(error))]
    return errors


def _alone(space: Space, sweep: SweepConfig, change: Change) -> list[Said]:
    """Ends, choices and values of `set` that are wrong in the file itself and in some draws.

    What another key makes wrong in its section may hide them there.
    """
    source = random.Random(0)
    errors: dict[tuple[Any, ...], Said] = {}
    for section, key, at, value in _ends_and_choices(sweep):
        needs = space.needs(key, source) if section == "space" else {}
        problem = _problem_at(key, change({**needs, key: value}, ())[1])
        draws = [space.draw(source, {**needs, key: value}) for _ in range(_DRAWS_OF_A_VALUE)]
        top = key.partition(".")[0]
        if problem and all(
            _problem_at(top, change({**drawn, key: value}, space.inactive(drawn))[1])
            for drawn in draws
        ):
            below, words = problem
            # What is wrong with several choices is said once.
            known = (section, key, below, words)
            place = ("sweep", section, key, *(() if known in errors else at), *below)
            errors[known] = place, words
    return list(errors.values())


def _ends_and_choices(sweep: SweepConfig) -> Iterator[tuple[str, str, KeyPath, Any]]:
    """Section and key, place below the key, value."""
    for key, parameter in sweep.space.items():
        if parameter.choices is None:
            yield "space", key, ("low",), parameter.low
            yield "space", key, ("high",), parameter.high
        for place, choice in enumerate(parameter.choices or ()):
            yield "space", key, ("choices", place), choice
    for key, value in sweep.set.items():
        yield "set", key, (), value


def _problem_at(key: str, said: Sequence[Said]) -> Said | None:
    """The first that is wrong at a key, or below it."""
    path = tuple(key.split("."))
    for place, words in said:
        if place == path[: len(place)] or path == place[: len(path)]:
            return place[len(path) :], words
    return None


def _together(space: Space, sweep: SweepConfig, change: Change) -> list[Said]:
    """Draws of the space that the schema refuses: the first for each key that is wrong."""
    source = random.Random(0)
    errors: dict[KeyPath, Said] = {}
    for _ in range(DRAWS):
        drawn = space.draw(source)
        for path, words in change(drawn, space.inactive(drawn))[1]:
            if path not in errors and len(errors) < _MOST_LINES:
                errors[path] = _refused(dotted(path), words, {**sweep.set, **drawn}, sweep)
    return list(errors.values())


def _refused(key: str, words: str, values: Values, sweep: SweepConfig) -> Said:
    shown = ", ".join(
        f"{name}: {f'{value:.4g}' if isinstance(value, float) else show(value)}"
        for name, value in values.items()
    )
    start = f"with {shown} the experiment is refused"
    if key in sweep.space:
        remedy = "'when' can leave the key out there"
        return ("sweep", "space", key), f"{start}: {words}; {remedy}"
    remedy = "change the values"
    if not key.startswith("sweep."):
        remedy += f", or sweep {key} as well, with 'when'"
    return ("sweep", "space"), f"{start}: {key}: {words}; {remedy}"
