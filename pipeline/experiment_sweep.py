"""Checks that every point of a sweep's space is an experiment."""

from collections.abc import Iterator, Mapping
from typing import Any

from optuna.samplers import RandomSampler

from hpo.config import SweepConfig
from hpo.space import Space
from nas.derivation import RULES, check_method, method_of
from nas.derivation.base import Request
from pipeline.experiment import Experiment, changed_settings
from utils.validation import Said, dotted, show, takes_integers_alone

DRAWS = 200
_MOST_LINES = 5
Values = Mapping[str, Any]

# By the beginning of a key.
_NEVER = {
    "run.seed": "sweep.seeds has the seeds of the trials",
    "compare.": "trials are not compared with baselines",
    "sweep.": "a sweep cannot change itself",
}
# What a training has learnt at a step depends on these.
_PACE = ("retrain.steps", "retrain.epochs", "retrain.fine_tune", "data.batch", "data.segment")
_SWEPT_OF_RUN = ("run.precision", "run.micro_batches")


def space_of(experiment: Experiment) -> Space:
    """The space of an experiment with a sweep; the schema says which keys take integers only."""
    assert experiment.sweep is not None
    space = experiment.sweep.space
    integers = {key for key in space if takes_integers_alone(Experiment, tuple(key.split(".")))}
    return Space(space, integers)


def sweep_problems(experiment: Experiment) -> list[Said]:
    """All that is wrong with the sweep of an experiment that is itself valid.

    The ends of each range and each choice are tried in a random draw of the other keys, then whole
    random draws, because settings that are right alone may contradict each other.
    """
    sweep = experiment.sweep
    assert sweep is not None
    space = space_of(experiment)
    if errors := dict([*_places(sweep, experiment), *_faults(sweep, space)]):
        return list(errors.items())
    source, searched = RandomSampler(seed=0), False
    for values in (*space.edges(source), *(space.draw(source) for _ in range(DRAWS))):
        every = {**sweep.set, **values}
        changed, said = changed_settings(experiment, every, space.inactive(values))
        if changed is not None and not said:
            searched |= changed.has_search
            said = [*_late_problems(changed, sweep)]
        for path, words in said[: _MOST_LINES - len(errors)]:
            place, at = _place_of(path, sweep)
            errors.setdefault(place, f"{at}{words} (with {shown_values(every)})")
    idle = [] if errors or searched else [key for key in space.keys if key.startswith("search.")]
    words = "has no effect: by their derive.method trials search nothing"
    return [*errors.items(), *((("sweep", "space", key), words) for key in idle)]


def _faults(sweep: SweepConfig, space: Space) -> Iterator[Said]:
    for place, words in space.faults():
        yield ("sweep", "space", *place), words
    if sweep.sampler.kind == "grid":
        try:
            space.grid()
        except ValueError as error:
            yield ("sweep", "space"), str(error)


def _place_of(path: tuple[str | int, ...], sweep: SweepConfig) -> Said:
    """Place in the file of what is wrong with a draw at `path`, and what place cannot say."""
    key = dotted(path)
    for section, keys in (("space", sweep.space), ("set", sweep.set)):
        for name in keys:
            if f"{key}.".startswith((f"{name}.", f"{name}[")):
                return ("sweep", section, name), f"{key}: " if key != name else ""
    return ("sweep", "space"), f"{key}: "


def shown_values(values: Values) -> str:
    """Settings of a trial in one line."""
    return ", ".join(
        f"{name}: {f'{value:.4g}' if isinstance(value, float) else show(value)}"
        for name, value in values.items()
    )


def _late_problems(experiment: Experiment, sweep: SweepConfig) -> Iterator[Said]:
    """Problems that a trial would meet late, or hide."""
    derive = experiment.derive
    if experiment.data.tokenizer.lower_case:
        yield (
            ("data", "tokenizer", "lower_case"),
            "trials are compared by bits per byte, which a text without capitals does not have",
        )
    if derive.searches:
        yield ("derive", "searches"), "a trial searches with one seed at a time; leave it out"
    try:
        check_method(derive.method, alpha_learned=experiment.search.alpha_learns)
        # A random layout may need costs, which only a text gives.
        if derive.method in RULES and derive.method != "random":
            candidates = experiment.model.completed_candidates()
            request = Request(derive, candidates, experiment.model.n_blocks, _no_cost)
            method_of(derive.method)(request)
    except ValueError as error:
        yield ("derive", "method"), "; ".join(str(error).splitlines())
    for key in experiment.timed:
        yield (
            tuple(key.split(".")),
            "layouts would be timed beside other trials; limit flops, which are counted, at least "
            "in trials (sweep.set: {derive.budget: {flops: 0.65x}})",
        )
    try:
        if experiment.has_search:
            experiment.check_searchable()
        else:
            experiment.check_seeds(sweep.seeds)
    except ValueError as error:
        key, _, words = str(error).partition(": ")
        yield tuple(key.split(".")), words
    least, retrain = sweep.pruner.min_steps or experiment.run.validate_every, experiment.retrain
    steps = None if retrain.fine_tune else retrain.steps
    if sweep.pruner.kind != "none" and steps is not None and least > steps:
        yield (
            ("sweep", "pruner"),
            f"{sweep.pruner.kind}: stops no trial before step {least}, and a retraining has "
            f"{steps} (retrain.steps)",
        )


def _no_cost(layout: object) -> float:
    raise AssertionError(layout)


def _places(sweep: SweepConfig, experiment: Experiment) -> Iterator[Said]:
    """Keys that no sweep may change, or that are given twice."""
    for section, keys in (("space", sweep.space), ("set", sweep.set)):
        for key in keys:
            place = ("sweep", section, key)
            of_data = experiment.data.why_not_comparable(key.removeprefix("data."))
            if why := _forbidden(sweep, section, key) or of_data:
                yield place, f"cannot be {'swept' if section == 'space' else 'set'}: {why}"
            elif key in type(experiment).model_fields:
                yield place, "is a whole section; name a key in it"
            for other in (*sweep.space, *sweep.set):
                if key.startswith(f"{other}."):
                    yield place, f"is a part of {other}, which is given as well"
            if section == "set" and key in sweep.space:
                yield place, "is in sweep.space as well; leave one out"


def _forbidden(sweep: SweepConfig, section: str, key: str) -> str | None:
    for start, why in _NEVER.items():
        if key.startswith(start):
            return why
    if section == "space" and sweep.pruner.kind != "none" and key.startswith(_PACE):
        return "a pruner compares trainings at equal steps; leave it or sweep.pruner out"
    if section == "space" and key.startswith("run.") and key not in _SWEPT_OF_RUN:
        return "it changes where or how often, not what is learned"
    return None
