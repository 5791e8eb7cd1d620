"""Each pruner in a real study: it stops what is bad, not what is good, and not too early."""

import optuna
import pytest

from hpo.config import PrunerConfig
from hpo.samplers import make_pruner

EVERY = 50


def stopped_at(config, loss, trials=9):
    """The validation at which each of `trials` is stopped; 0: none."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(pruner=make_pruner(config, EVERY))
    found = []
    for number in range(trials):
        trial, at = study.ask(), 0
        for validation in range(1, 10):
            trial.report(loss(number), step=validation * EVERY)
            if trial.should_prune():
                at = validation
                break
        found.append(at)
        state = optuna.trial.TrialState.PRUNED if at else None
        study.tell(trial, None if at else loss(number), state=state)
    return found


def worse_and_worse(number):
    return 1.0 + number


@pytest.mark.parametrize(("given", "first"), [(None, 1), (1, 1), (2 * EVERY, 2)])
def test_median_stops_the_worse_and_none_before_min_steps(given, first):
    config = PrunerConfig(kind="median", min_steps=given)
    assert stopped_at(config, worse_and_worse) == [0] * 5 + [first] * 4
    assert stopped_at(config, lambda number: 1.0 / (1 + number)) == [0] * 9


def test_halving_stops_the_worse_and_none_before_min_steps():
    config = PrunerConfig(kind="successive_halving", min_steps=2 * EVERY)
    found = stopped_at(config, worse_and_worse, trials=30)
    assert found[0] == 0
    assert any(found)
    assert min(at for at in found if at) >= 2
    assert stopped_at(config, lambda number: -float(number), trials=30) == [0] * 30
