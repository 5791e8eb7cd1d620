"""A sweep as it is planned: its folder, its baseline, its study, the settings of each trial."""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial

from hpo.config import SweepConfig
from hpo.samplers import NumberedSampler, make_pruner
from hpo.space import Space
from hpo.study import fill, open_storage
from pipeline.experiment import Experiment, changed_settings, with_settings
from pipeline.experiment_sweep import space_of
from training.run_dir import identity_hash
from utils.text import masked
from utils.validation import show

# Written last: until it is there, no worker joins.
IDENTITY = "parnas:identity"
# What may change between two starts of a sweep.
_FREE = {"trials", "retries", "storage", "grace_s"}


@dataclass(frozen=True)
class Sweep:
    """A sweep in its run folder.

    `experiment` has the values of the baseline; `baseline` has them as Optuna stores them, or is
    None where the space lacks them, for the reason `no_baseline`.
    """

    experiment: Experiment
    config: SweepConfig
    space: Space
    run: Path
    baseline: dict[str, Any] | None
    no_baseline: str

    @property
    def own(self) -> Path:
        """The folder of what the sweep keeps of itself."""
        return self.run / "sweep"

    def trial(self, number: int) -> Path:
        """The folder of a trial, which has a run directory `seed-N` for each seed."""
        return self.run / "trials" / f"{number:04d}"

    @property
    def storage(self) -> str:
        """The URL of the study's database, with its password."""
        return self.config.storage or f"sqlite:///{self.own / 'study.db'}"

    def of_trials(self, key: str) -> Any:
        """The value that trials have at a key of `run`."""
        return self.config.set.get(f"run.{key}", getattr(self.experiment.run, key))


def sweep_of(experiment: Experiment, run: Path) -> Sweep:
    """The sweep of an experiment that has one."""
    assert experiment.sweep is not None
    space = space_of(experiment)
    return Sweep(experiment, experiment.sweep, space, run, *baseline(experiment, space))


def baseline(experiment: Experiment, space: Space) -> tuple[dict[str, Any] | None, str]:
    """Params of the trial that is the experiment as its file has it, or why the space lacks it."""
    own: dict[str, Any] = {}
    reasons: list[str] = []
    for key in space.keys:
        if key not in space.inactive(own):
            own[key] = _own_value(experiment, space, key)
            if not space.holds(key, own[key]):
                reasons.append(f"{key} is {show(own[key])} there, outside its range or choices")
    bare, _ = changed_settings(experiment, {})
    reasons += [
        f"it sets {key}, which 'when' leaves out"
        for key in space.inactive(own)
        if changed_settings(experiment, {}, [key])[0] != bare
    ]
    return (None, "; ".join(reasons)) if reasons else (space.params(own), "")


def _own_value(experiment: Experiment, space: Space, key: str) -> Any:
    """The choice that changes nothing; of a range what the experiment has."""
    bare, _ = changed_settings(experiment, {})
    for choice in space.choices(key):
        if changed_settings(experiment, {key: choice})[0] == bare:
            return choice
    *sections, last = key.split(".")
    section: Any = experiment
    for name in sections:
        section = getattr(section, name, None)
    return getattr(section, last, None)


def trial_experiment(sweep: Sweep, values: Mapping[str, Any], threads: int) -> Experiment:
    """The experiment of a trial, for all of its seeds; nobody looks at its figures."""
    unseen = {"run.figures": False, "run.trackers": [], "derive.gap": False}
    settings = {**unseen, "run.threads": threads, **sweep.config.set, **values}
    return with_settings(sweep.experiment, settings, sweep.space.inactive(values))


def chosen_experiment(sweep: Sweep, params: Mapping[str, Any]) -> Experiment:
    """The experiment with the values of a finished trial, at its full length."""
    values = sweep.space.values(params)
    return with_settings(sweep.experiment, values, sweep.space.inactive(values))


def is_baseline(sweep: Sweep, trial: FrozenTrial) -> bool:
    """True where a trial has the experiment file's own values, whoever suggested it."""
    own, params = sweep.baseline, trial.params or trial.system_attrs.get("fixed_params", {})
    if own is None or params.keys() != own.keys():
        return False
    return sweep.space.values(params) == sweep.space.values(own)


def points(sweep: Sweep) -> list[dict[str, Any]]:
    """Fixed values of each trial: all points of a grid; else of the first one, if anything."""
    if sweep.config.sampler.kind == "grid":
        return sweep.space.grid()
    assert sweep.config.trials is not None
    return [sweep.baseline or {}, *[{}] * (sweep.config.trials - 1)]


def identity(sweep: Sweep) -> dict[str, Any]:
    """Sections by which trials can be compared: those of another sweep are not this one's."""
    experiment, run = sweep.experiment, sweep.experiment.run
    return {
        **run.model_dump(include={"precision", "micro_batches", "validate_every"}),
        **experiment.model_dump(mode="json", include={"data", "derive"}),
        "costs": {"batch": experiment.costs.batch},
        "model": experiment.model.identity(),
        "retrain": experiment.retrain.identity(),
        "search": experiment.search.identity(),
        "sweep": sweep.config.model_dump(mode="json", exclude=_FREE),
    }


def create_study(sweep: Sweep, inputs: Mapping[str, str]) -> optuna.Study:
    """Make the study where it is not there yet, with every trial enqueued.

    Raises:
        ValueError: the storage cannot be used, holds another sweep or somebody else's study of
            this name, or lacks the one that was begun.
    """
    study = optuna.create_study(
        storage=_storage(sweep),
        study_name=_name(sweep),
        directions=["minimize"] * len(sweep.config.objectives),
        load_if_exists=True,
    )
    if IDENTITY in study.user_attrs:
        _check(study, sweep, inputs)
    elif (begun := sweep.run / "trials").exists():
        raise ValueError(
            f"{masked(sweep.storage)}: no study {_name(sweep)}, though {begun} holds trials that "
            "it knew; put it back, give the sweep.storage of before, or use another --run directory"
        )
    elif any(trial.state.is_finished() for trial in study.trials):
        raise ValueError(
            f"{masked(sweep.storage)}: its study {_name(sweep)} is no sweep of Parnas; use another "
            "--run directory, by whose name a study is called"
        )
    study.set_metric_names(list(sweep.config.objectives))
    fill(study, points(sweep))
    study.set_user_attr(IDENTITY, _identity_of(sweep, inputs))
    return _ready(study, sweep)


def join_study(sweep: Sweep, inputs: Mapping[str, str]) -> optuna.Study:
    """Open the study that another process has made; ValueError where it is another sweep's."""
    if sweep.config.storage is not None or (sweep.own / "study.db").exists():
        with suppress(KeyError):
            study = optuna.load_study(study_name=_name(sweep), storage=_storage(sweep))
            if IDENTITY in study.user_attrs:
                _check(study, sweep, inputs)
                return _ready(study, sweep)
    raise ValueError(f"{masked(sweep.storage)}: no sweep there yet; start it with sweep.py")


def _storage(sweep: Sweep) -> optuna.storages.BaseStorage:
    warnings.simplefilter("ignore", ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return open_storage(sweep.storage, sweep.config.grace_s, sweep.config.retries)


def _name(sweep: Sweep) -> str:
    """The run folder's in a shared database; in the folder's own one, which may be renamed, one."""
    return "sweep" if sweep.config.storage is None else sweep.run.resolve().name


def _identity_of(sweep: Sweep, inputs: Mapping[str, str]) -> str:
    return identity_hash({**identity(sweep), **inputs})


def _check(study: optuna.Study, sweep: Sweep, inputs: Mapping[str, str]) -> None:
    """Raise ValueError where a study's trials could not be compared with this experiment's."""
    if study.user_attrs[IDENTITY] != _identity_of(sweep, inputs):
        raise ValueError(
            f"study {study.study_name}: is that of another experiment, space, text or tokenizer; "
            "repeat the file and the --set of its first start, or use another --run directory "
            "(python-stdlib differs between versions of Python)"
        )


def _ready(study: optuna.Study, sweep: Sweep) -> optuna.Study:
    study.sampler = NumberedSampler(sweep.config)
    study.pruner = make_pruner(sweep.config.pruner, sweep.of_trials("validate_every"))
    return study
