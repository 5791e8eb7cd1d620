"""The experiments of a sweep: a trial's, the chosen one, and what the first trials begin with."""

import math
from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial

from assembly.sweeping.plan import Sweep
from experiment import Experiment, with_settings


def trial_experiment(sweep: Sweep, values: Mapping[str, Any], threads: int) -> Experiment:
    """The experiment of a trial.

    Raises:
        ValueError: its values do not go together.
    """
    run = sweep.experiment.run
    here = {
        "run.figures": False,
        "run.tensorboard": False,
        "run.threads": run.threads or threads,
        "derive.gap": False,
    }
    return with_settings(
        sweep.experiment, {**sweep.config.set, **values, **here}, sweep.space.inactive(values)
    )


def chosen_experiment(sweep: Sweep, params: Mapping[str, Any]) -> Experiment:
    """The experiment with the values of a finished trial, at its full length."""
    values = sweep.space.values(params)
    return with_settings(sweep.experiment, values, sweep.space.inactive(values))


def is_baseline(sweep: Sweep, trial: FrozenTrial) -> bool:
    """Whether a trial has the experiment file's own values, whoever suggested it.

    With `sweep.baseline: false` none counts as the baseline.
    """
    own = sweep.baseline.params
    params = trial.params or trial.system_attrs.get("fixed_params", {})
    return (
        sweep.config.baseline
        and own is not None
        and params.keys() == own.keys()
        and all(_same(params[key], own[key]) for key in own)
    )


def why_no_baseline(sweep: Sweep) -> str | None:
    """Why no trial has the file's own values although `sweep.baseline` wants one; else None."""
    if not sweep.config.baseline or sweep.baseline.params is not None:
        return None
    return sweep.baseline.reason


def points(sweep: Sweep) -> list[dict[str, Any]]:
    """What is fixed of each trial: all points of a grid; else of the first one, if anything."""
    if sweep.config.sampler.kind == "grid":
        return sweep.space.grid()
    assert sweep.config.trials is not None
    own = sweep.baseline.params if sweep.config.baseline else None
    return [own or {}, *[{}] * (sweep.config.trials - 1)]


def _same(one: Any, other: Any) -> bool:
    """Whether two params are equal; a grid's step may come to 0.30000000000000004."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
