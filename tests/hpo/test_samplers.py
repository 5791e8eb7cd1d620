"""Each sampler in a real study: the same history gives the same suggestion, whoever asks."""

import warnings
from typing import get_args

import optuna
import pytest

from hpo.config import SamplerConfig, SweepConfig
from hpo.samplers import NumberedSampler
from hpo.space import Space

SPACE = {
    "lr": {"low": 0.001, "high": 1.0, "log": True},
    "kind": {"choices": ("a", "b", "c")},
    "n": {"low": 1, "high": 9},
    "stairs": {"low": 2, "high": 8, "when": {"kind": "b"}},
}
INTEGERS = {"n", "stairs"}


def config(kind, objectives=("retrained",), seed=0):
    options = {"startup": 4} if kind == "tpe" else {}
    options |= {"population": 4} if kind == "nsga2" else {}
    return SweepConfig(
        space=SPACE,
        trials=None if kind == "grid" else 20,
        objectives=objectives,
        sampler={"kind": kind, "seed": seed, **options},
    )


def study_of(sweep, storage=None):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name="s",
        storage=storage,
        sampler=NumberedSampler(sweep),
        directions=["minimize"] * len(sweep.objectives),
        load_if_exists=True,
    )


def result(values, sweep):
    worth = values["lr"] + values["n"] + 0.1 * values.get("stairs", 0)
    return [worth, values["n"] - worth][: len(sweep.objectives)]


def run(sweep, space, trials, workers=1):
    """Values of each trial; every trial may be asked and told by another worker."""
    storage = optuna.storages.InMemoryStorage()
    studies = [study_of(sweep, storage) for _ in range(workers)]
    found = []
    for number in range(trials):
        trial = studies[number % workers].ask()
        found.append(space.suggest(trial))
        studies[(number + 1) % workers].tell(trial.number, result(found[-1], sweep))
    return found


def test_what_other_workers_run_is_weighed_by_tpe_as_trials_without_success():
    """Else workers that ask at once would all try the same best place."""
    sweep = config("tpe")

    def next_values(beside):
        study, space = study_of(sweep), Space(sweep.space, INTEGERS)
        for _ in range(8):
            trial = study.ask()
            study.tell(trial.number, result(space.suggest(trial), sweep))
        for _ in range(3):
            trial = study.ask()
            space.suggest(trial)
            if beside == "failed":
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        return space.suggest(study.ask())

    assert next_values("running") == next_values("running") != next_values("failed")


@pytest.mark.parametrize("objectives", [("retrained",), ("retrained", "flops")], ids=len)
@pytest.mark.parametrize("kind", get_args(SamplerConfig.model_fields["kind"].annotation))
def test_a_sampler_is_the_same_for_every_worker_and_warns_of_nothing(kind, objectives):
    sweep = config(kind, objectives)
    space = Space(sweep.space, INTEGERS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = run(sweep, space, 14)
        assert run(sweep, space, 14, workers=3) == alone
        assert all(space.values(space.params(values)) == values for values in alone)
        # nsga2's later trials inherit numbers of earlier ones.
        drawn = 4 if kind == "nsga2" else 14
        fresh = {values["lr"] for values in alone[:drawn]}
        assert len(fresh) == drawn
        other = run(config(kind, objectives, seed=1), space, 14)
    assert not fresh & {values["lr"] for values in other[:drawn]}


def test_an_enqueued_point_is_taken_as_it_is():
    sweep = config("grid")
    space = Space(sweep.space, INTEGERS)
    values = {"lr": 0.5, "kind": "b", "n": 3, "stairs": 4}
    study = study_of(sweep)
    study.enqueue_trial(space.params(values))
    assert space.suggest(study.ask()) == values
