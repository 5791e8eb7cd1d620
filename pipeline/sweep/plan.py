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
    bare, _ = changed_settings(experiment, {})
    own: dict[str, Any] = {}
    left_out: dict[str, Any] = {}
    reasons: list[str] = []
    for key in space.keys:
        if key in space.inactive(own):
            continue
        value = _own_value(experiment, bare, space, key)
        if value is None and not space.holds(key, value):
            # The file leaves the key to its default, which is a value of the space where it is one.
            value = left_out[key] = _value_in_use(experiment, key)
        if space.holds(key, value):
            own[key] = value
        else:
            reasons.append(f"{key} is {show(value)} there, not in {space.describe(key)}")
    if reasons:
        return Baseline(None, "; ".join(reasons))
    without = space.inactive(own)
    bare, _ = changed_settings(experiment, left_out)
    same, _ = changed_settings(experiment, own, without)
    if same != bare:
        return Baseline(None, f"it sets {', '.join(without)}, which 'when' leaves out")
    return Baseline(space.params(own))


def _own_value(experiment: Experiment, bare: Experiment | None, space: Space, key: str) -> Any:
    """The choice that changes nothing; of a range what the file says."""
    for choice in space.choices(key) or ():
        if changed_settings(experiment, {key: choice})[0] == bare:
            return choice
    here: Any = experiment.model_dump(mode="json")
    for part in key.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def _value_in_use(experiment: Experiment, key: str) -> Any:
    """Value in use of a key that the file leaves out; None where its section alone does not say."""
    *sections, last = key.split(".")
    here: Any = experiment
    for name in sections:
        here = getattr(here, name, None)
    return here.left_out().get(last) if isinstance(here, Section) else None


@dataclass(frozen=True)
class SweepPaths:
    """The paths below a sweep's run directory."""

    run: Path

    @property
    def own(self) -> Path:
        """Folder of the sweep itself: experiment, identity, study."""
        return self.run / "sweep"

    @property
    def own_experiment(self) -> Path:
        """The experiment with its `sweep` section, as it was last started."""
        return self.own / "experiment.yaml"

    @property
    def database(self) -> Path:
        """Optuna's study, where the experiment names no other database."""
        return self.own / "study.db"

    @property
    def trials(self) -> Path:
        """One folder for each trial."""
        return self.run / "trials"

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
