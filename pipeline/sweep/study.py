"""The study of a sweep: made by who starts it, opened by workers, and whose it is."""

import warnings
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from sqlalchemy.exc import SQLAlchemyError

from hpo.samplers import NumberedSampler, make_pruner
from hpo.study import fill, open_storage
from pipeline.sweep.plan import Sweep, points, validate_every
from training.run_dir import identity_hash
from utils.text import masked

# Written last: until it is there, no worker joins.
IDENTITY = "parnas:identity"
# What may change between two starts of a sweep.
_FREE = {"trials", "trial_minutes", "retries", "keep", "storage", "grace_s"}
STORAGE_ERRORS = (SQLAlchemyError, StorageInternalError)


def identity(sweep: Sweep) -> dict[str, Any]:
    """Sections by which trials can be compared: those of another sweep are not this one's."""
    experiment = sweep.experiment.model_dump(mode="json", include={"data", "derive"})
    return {
        "precision": sweep.experiment.run.precision,
        "micro_batches": sweep.experiment.run.micro_batches,
        "validate_every": sweep.experiment.run.validate_every,
        **experiment,
        "model": sweep.experiment.model.identity(),
        "retrain": sweep.experiment.retrain.identity(),
        "search": sweep.experiment.search.identity(),
        "sweep": sweep.config.model_dump(mode="json", exclude=_FREE),
    }


def create_study(sweep: Sweep, inputs: dict[str, str], *, begun: bool) -> optuna.Study:
    """Make the study where it is not there yet, with every trial enqueued.

    `begun`: the folder has trials of this sweep already, so the study must be there.

    Raises:
        ValueError: the storage cannot be used, holds another sweep of this name, or lacks one that
            was begun.
    """
    storage, name = _storage(sweep), _name(sweep)
    known = {study.study_name: study.user_attrs for study in storage.get_all_studies()}
    if IDENTITY not in known.get(name, {}):
        if begun:
            raise ValueError(
                f"{sweep.shown_storage}: no study {name}, though {sweep.paths.trials} holds trials "
                "that it knew; put it back, give the sweep.storage of before, or use another --run "
                "directory"
            )
        if name in known and sweep.config.storage is not None:
            raise ValueError(
                f"{sweep.shown_storage}: its study {name} is no whole sweep; delete it, or use "
                "another --run directory"
            )
        if name in known:  # its making was cut short
            optuna.delete_study(study_name=name, storage=storage)
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=["minimize"] * len(sweep.config.objectives),
        load_if_exists=True,
    )
    if IDENTITY in study.user_attrs:
        _check(study, sweep, inputs)
    else:
        study.set_metric_names(list(sweep.config.objectives))
    if sweep.baseline.reason:
        print(f"no trial with the file's own values: {sweep.baseline.reason}", flush=True)
    fill(study, points(sweep))
    study.set_user_attr(IDENTITY, _identity_of(sweep, inputs))
    return _ready(study, sweep)


def join_study(sweep: Sweep, inputs: dict[str, str]) -> optuna.Study:
    """Open the study that another process has made.

    Raises:
        ValueError: it is not there, or is another sweep's.
    """
    if sweep.config.storage is None and not sweep.paths.database.exists():
        raise ValueError(f"{sweep.paths.database}: no sweep there yet; start it with sweep.py")
    storage, name = _storage(sweep), _name(sweep)
    known = {study.study_name: study.user_attrs for study in storage.get_all_studies()}
    if IDENTITY not in known.get(name, {}):
        raise ValueError(
            f"{sweep.shown_storage}: no sweep {name} there yet; start it with sweep.py"
        )
    study = optuna.load_study(study_name=name, storage=storage)
    _check(study, sweep, inputs)
    return _ready(study, sweep)


def _name(sweep: Sweep) -> str:
    """The run folder's in a shared database; in the folder's own one, which may be renamed, one."""
    return "sweep" if sweep.config.storage is None else sweep.paths.run.resolve().name


def _identity_of(sweep: Sweep, inputs: dict[str, str]) -> str:
    return identity_hash({**identity(sweep), **inputs})


def _check(study: optuna.Study, sweep: Sweep, inputs: dict[str, str]) -> None:
    """Raise ValueError where a study's trials could not be compared with this experiment's."""
    if study.user_attrs[IDENTITY] != _identity_of(sweep, inputs):
        raise ValueError(
            f"study {study.study_name}: is that of another experiment, space, text or tokenizer; "
            "repeat the file and the --set of its first start, or use another --run directory "
            "(python-stdlib differs between versions of Python)"
        )


def _ready(study: optuna.Study, sweep: Sweep) -> optuna.Study:
    study.sampler = NumberedSampler(sweep.config)
    study.pruner = make_pruner(sweep.config.pruner, validate_every(sweep))
    return study


def _storage(sweep: Sweep) -> optuna.storages.BaseStorage:
    warnings.simplefilter("ignore", ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return open_storage(sweep.storage, sweep.config.grace_s, sweep.config.retries)
    except ImportError as error:
        raise ValueError(
            f"sweep.storage: {sweep.shown_storage}: its driver is missing ({error}); for "
            "PostgreSQL run `pip install 'psycopg[binary]'`"
        ) from None
    except (*STORAGE_ERRORS, RuntimeError, ValueError) as error:
        raise ValueError(storage_problem(sweep, error)) from None


def storage_problem(sweep: Sweep, error: Exception) -> str:
    """One line about a database that cannot be used, without its password."""
    cause = error.__cause__ or error
    said = " ".join(str(getattr(cause, "orig", None) or cause).split())
    return f"sweep.storage: {sweep.shown_storage} cannot be used ({masked(said):.300})"
