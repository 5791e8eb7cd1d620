"""A sweep as it is planned: its folder, its space, its baseline, the settings of each trial."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from data import Tokenizer, known_losses
from hpo.config import SweepConfig
from hpo.space import Space
from pipeline.experiment import Experiment, changed_settings, with_settings
from pipeline.experiment_sweep import DRAWS, number_kinds
from utils.text import masked
from utils.validation import Section, show


@dataclass(frozen=True)
class Baseline:
    """The experiment file's own values as Optuna stores them, or why the space lacks them.

    With `sweep.baseline: false` there is neither.
    """

    params: dict[str, Any] | None = None
    reason: str = ""


def space_of(experiment: Experiment) -> Space:
    """The space of an experiment with a sweep."""
    assert experiment.sweep is not None
    space = experiment.sweep.space
    return Space(space, number_kinds(Experiment, space))


def baseline(experiment: Experiment, space: Space) -> Baseline:
    """The trial that is the experiment as its file has it (but for `sweep.set`)."""
    own: dict[str, Any] = {}
    reasons: list[str] = []
    for key in space.keys:
        if key not in space.inactive(own):
            own[key] = _own_value(experiment, space, key)
            if not space.holds(key, own[key]):
                reasons.append(f"{key} is {show(own[key])} there, not in {space.describe(key)}")
    given = experiment.model_dump(mode="json", exclude_defaults=True)
    reasons += [
        f"it sets {key}, which 'when' leaves out"
        for key in space.inactive(own)
        if _value_at(given, key) is not None
    ]
    return Baseline(None, "; ".join(reasons)) if reasons else Baseline(space.params(own))


def _own_value(experiment: Experiment, space: Space, key: str) -> Any:
    """The choice that changes nothing; of a range what the file says, or the default in use."""
    bare, _ = changed_settings(experiment, {})
    for choice in space.choices(key) or ():
        if changed_settings(experiment, {key: choice})[0] == bare:
            return choice
    value = _value_at(experiment.model_dump(mode="json"), key)
    if value is not None:
        return value
    *sections, last = key.split(".")
    section: Any = experiment
    for name in sections:
        section = getattr(section, name, None)
    # Where the section alone says which value a key that is left out has.
    return section.left_out().get(last) if isinstance(section, Section) else None


def _value_at(data: Any, key: str) -> Any:
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


class SweepPaths:
    """The paths below a sweep's run directory: its own folder, and one for each trial.

    `own_experiment` has the section `sweep` as it was last started; `database` is Optuna's, where
    the experiment names no other one.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.own, self.trials = run / "sweep", run / "trials"
        self.own_experiment, self.database = self.own / "experiment.yaml", self.own / "study.db"

    def trial(self, number: int) -> Path:
        """The folder of a trial."""
        return self.trials / f"{number:04d}"

    def seed(self, number: int, seed: int) -> Path:
        """The run directory of a trial and a seed."""
        return self.trial(number) / f"seed-{seed}"


@dataclass(frozen=True)
class Sweep:
    """A sweep; `config` is the section `sweep` of its experiment, whose values are the baseline."""

    experiment: Experiment
    config: SweepConfig
    space: Space
    paths: SweepPaths
    baseline: Baseline

    @property
    def storage(self) -> str:
        """The URL of the study's database."""
        return self.config.storage or f"sqlite:///{self.paths.database.resolve()}"

    @property
    def shown_storage(self) -> str:
        """The URL as it may stand on a screen or in a file."""
        return masked(self.config.storage or f"sqlite:///{self.paths.database}")


def sweep_of(experiment: Experiment, run: Path) -> Sweep:
    """The sweep of an experiment that has one."""
    config, space = experiment.sweep, space_of(experiment)
    assert config is not None
    own = baseline(experiment, space) if config.baseline else Baseline()
    return Sweep(experiment, config, space, SweepPaths(run), own)


def trial_experiment(sweep: Sweep, values: Mapping[str, Any], threads: int) -> Experiment:
    """The experiment of a trial, for all of its seeds.

    Raises:
        ValueError: its values do not go together.
    """
    here = {
        "run.figures": False,
        "run.trackers": [],
        "run.threads": asked_threads(sweep) or threads,
        "derive.gap": False,
    }
    return with_settings(
        sweep.experiment, {**sweep.config.set, **values, **here}, sweep.space.inactive(values)
    )


def asked_threads(sweep: Sweep) -> int | None:
    """The threads of a trial that the file asks for; None where a worker's share decides."""
    threads: int | None = sweep.config.set.get("run.threads", sweep.experiment.run.threads)
    return threads


def validate_every(sweep: Sweep) -> int:
    """After how many search steps trials validate, which is when a pruner is asked."""
    steps: int = sweep.config.set.get("run.validate_every", sweep.experiment.run.validate_every)
    return steps


def check_tokenizers(sweep: Sweep, tokenizer: Tokenizer) -> None:
    """Refuse a sweep whose trials would have no bits per byte, by which they are compared.

    The tokenizer is the experiment's own, which has seen the text.

    Raises:
        ValueError: a trial's tokenizer loses text, or its model cannot be had.
        OSError: its model cannot be read.
    """
    source = random.Random(0)
    varies = any(key.startswith("data.tokenizer") for key in sweep.space.keys)
    for _ in range(DRAWS if varies else 1):
        config = trial_experiment(sweep, sweep.space.draw(source), threads=1).data.tokenizer
        own = config == sweep.experiment.data.tokenizer
        if losses := tokenizer.losses if own else known_losses(config):
            settings = json.dumps(config.model_dump(exclude_defaults=True))
            raise ValueError(
                f"data.tokenizer: with {settings} trials have no bits per byte, by which they are "
                f"compared ({'; '.join(losses)}); use a lossless one (kind bpe, unigram or bytes, "
                "without lower_case)"
            )


def chosen_experiment(sweep: Sweep, params: Mapping[str, Any]) -> Experiment:
    """The experiment with the values of a finished trial, at its full length."""
    values = sweep.space.values(params)
    return with_settings(sweep.experiment, values, sweep.space.inactive(values))


def is_baseline(sweep: Sweep, trial: FrozenTrial) -> bool:
    """True where a trial has the experiment file's own values, whoever suggested it."""
    own = sweep.baseline.params
    params = trial.params or trial.system_attrs.get("fixed_params", {})
    return (
        own is not None
        and params.keys() == own.keys()
        and all(sweep.space.is_same(key, params[key], own[key]) for key in own)
    )


def points(sweep: Sweep) -> list[dict[str, Any]]:
    """Fixed values of each trial: all points of a grid; else of the first one, if anything."""
    if sweep.config.sampler.kind == "grid":
        return sweep.space.grid()
    assert sweep.config.trials is not None
    return [sweep.baseline.params or {}, *[{}] * (sweep.config.trials - 1)]
