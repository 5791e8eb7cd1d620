"""Opening a sweep: its folder, its storage, its study; and whether a study is this sweep's."""

import secrets
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage

from hpo.config import JOURNAL
from hpo.queue import STUDY, Queue
from hpo.samplers import NumberedSampler, make_pruner
from hpo.storage import open_storage
from nas.derivation import SEEDED
from pipeline.sweep.plan import Sweep, points, validate_every, why_no_baseline
from training.run_dir import commit, identity_hash
from utils.screen import announce

# Written last: until it is there, no worker joins.
IDENTITY = "parnas:identity"
BEGUN = "parnas:begun"
INPUTS = "parnas:inputs"
COMMIT = "parnas:commit"
# What may change between two starts of a sweep.
_FREE = {"trials", "trial_minutes", "silent_minutes", "retries", "keep", "storage", "lease_s"}


def identity(sweep: Sweep) -> dict[str, Any]:
    """What makes a sweep what it is: trials of another one cannot be compared with its own."""
    experiment = sweep.experiment.model_dump(mode="json", include={"data", "derive"})
    # Before, all seeds of a trial derived alike: its trials are none to go on with.
    anew = {"derivations": "anew with each of sweep.seeds"} if _derives_by_seed(sweep) else {}
    return {
        **anew,
        "precision": sweep.experiment.run.precision,
        "micro_batches": sweep.experiment.run.micro_batches,
        "validate_every": sweep.experiment.run.validate_every,
        **experiment,
        "model": sweep.experiment.model.identity(),
        "retrain": sweep.experiment.retrain.identity(),
        "search": sweep.experiment.search.identity(),
        "sweep": sweep.config.model_dump(mode="json", exclude=_FREE),
    }


def _derives_by_seed(sweep: Sweep) -> bool:
    """Whether derivations of some trials differ with the seed of the run."""
    key, config = "derive.method", sweep.config
    swept = sweep.space.choices(key) or () if key in config.space else ()
    methods = {sweep.experiment.derive.method, config.set.get(key), *swept}
    return any(config.seeds) and not SEEDED.isdisjoint(methods)


def create(sweep: Sweep, inputs: Mapping[str, str], *, begun: bool) -> Queue:
    """The study, made where it is not there yet, with every trial in its queue.

    `begun`: the folder has trials of this sweep already, so the study must be there.

    Raises:
        ValueError: the storage cannot be used, holds another sweep of this name, or lacks one that
            was begun.
        OSError: the journal cannot be written.
    """
    storage = _storage(sweep, make=True)
    attributes = _studies(storage)
    name = _name(sweep, attributes)
    if begun and name not in attributes:
        raise ValueError(
            f"{sweep.shown_storage}: no study {name}, though {sweep.paths.trials} holds trials "
            "that it knew; put it back, give the sweep.storage of before, or use another --run "
            "directory"
        )
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=["minimize"] * len(sweep.config.objectives),
        load_if_exists=True,
    )
    if BEGUN not in study.user_attrs:
        _begin(sweep, inputs, study)
    queue = _queue(sweep, inputs, study, storage)
    if (why := why_no_baseline(sweep)) is not None:
        print(f"no trial with the file's own values: {why}", flush=True)
    queue.fill(points(sweep))
    study.set_user_attr(IDENTITY, study.user_attrs[BEGUN])
    return queue


def _begin(sweep: Sweep, inputs: Mapping[str, str], study: optuna.Study) -> None:
    """Make an empty study this sweep's; BEGUN last, so that a kill leaves nothing half done."""
    if study.trials or len(study.directions) != len(sweep.config.objectives):
        raise ValueError(_of_another(study))
    study.set_user_attr(STUDY, secrets.token_hex(8))
    study.set_user_attr(INPUTS, inputs)
    study.set_user_attr(COMMIT, commit())
    study.set_metric_names(list(sweep.config.objectives))
    study.set_user_attr(BEGUN, identity_hash(identity(sweep)))


def join(sweep: Sweep, inputs: Mapping[str, str]) -> Queue:
    """The study that another process has made.

    Raises:
        ValueError: it is not there, or is another sweep's.
        OSError: the journal cannot be read.
    """
    storage = _storage(sweep, make=False)
    attributes = _studies(storage)
    name = _name(sweep, attributes)
    if IDENTITY not in attributes.get(name, {}):
        raise ValueError(
            f"{sweep.shown_storage}: no sweep {name} there yet; start it with sweep.py"
        )
    return _queue(sweep, inputs, optuna.load_study(study_name=name, storage=storage), storage)


def _studies(storage: BaseStorage) -> dict[str, dict[str, Any]]:
    """The attributes of every study of a storage, by name."""
    return {study.study_name: study.user_attrs for study in storage.get_all_studies()}


def _name(sweep: Sweep, studies: Collection[str]) -> str:
    """The run folder's; in a journal, which lies in the folder, that of the only study there."""
    name = sweep.paths.run.resolve().name
    if sweep.config.storage == JOURNAL and name not in studies and len(studies) == 1:
        (name,) = studies  # the folder was renamed
    return name


def _queue(
    sweep: Sweep, inputs: Mapping[str, str], study: optuna.Study, storage: BaseStorage
) -> Queue:
    _check(sweep, inputs, study)
    study.sampler = NumberedSampler(sweep.config)
    study.pruner = make_pruner(sweep.config.pruner, validate_every(sweep))
    return Queue(study, storage, retries=sweep.config.retries)


def _storage(sweep: Sweep, *, make: bool) -> BaseStorage:
    warnings.simplefilter("ignore", ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return open_storage(sweep.config.storage, sweep.paths.journal, create=make, say=announce)


def _check(sweep: Sweep, inputs: Mapping[str, str], study: optuna.Study) -> None:
    """Raise ValueError where a study's trials could not be compared with this experiment's."""
    attributes = study.user_attrs
    if attributes.get(BEGUN) != identity_hash(identity(sweep)):
        raise ValueError(_of_another(study))
    if attributes.get(INPUTS) != inputs:
        raise ValueError(
            f"study {study.study_name}: was begun with another text or tokenizer "
            f"({_short(attributes.get(INPUTS))} there, {_short(inputs)} here), so its "
            "trials could not be compared; use the same text (python-stdlib differs between "
            "versions of Python)"
        )
    if attributes.get(COMMIT) != commit():
        print(
            f"study {study.study_name}: was begun by another version of the program "
            f"({attributes.get(COMMIT)} there, {commit()} here); trials.csv says which ran what",
            flush=True,
        )


def _of_another(study: optuna.Study) -> str:
    return (
        f"study {study.study_name}: is that of another experiment or space; repeat the file "
        "and the --set of its first start, or use another --run directory"
    )


def _short(inputs: Any) -> str:
    return ", ".join(f"{key} {str(value)[:12]}" for key, value in (inputs or {}).items())
