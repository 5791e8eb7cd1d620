"""The experiments of a sweep: a trial's, the chosen one, and what the first trials begin with."""

import json
import math
import random
from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial

from assembly.sweeping.plan import Sweep
from data import Tokenizer, TokenizerConfig, known_losses
from experiment import Experiment, with_settings
from experiment_space import DRAWS


def trial_experiment(sweep: Sweep, values: Mapping[str, Any], threads: int) -> Experiment:
    """The experiment of a trial.

    Raises:
        ValueError: its values do not go together.
    """
    here = {
        "run.figures": False,
        "run.tensorboard": False,
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


def check_tokenizers(sweep: Sweep, tokenizer: Tokenizer) -> None:
    """Refuse a sweep whose trials would have no bits per byte, by which they are compared.

    Args:
        sweep: the sweep.
        tokenizer: the experiment's own, which has seen the text.

    Raises:
        ValueError: a trial's tokenizer loses text, or its model cannot be had.
        OSError: its model cannot be read.
    """
    for config in _tokenizers(sweep):
        own = config == sweep.experiment.data.tokenizer
        if losses := tokenizer.losses if own else known_losses(config):
            settings = json.dumps(config.model_dump(exclude_defaults=True))
            raise ValueError(
                f"data.tokenizer: with {settings} trials have no bits per byte, by which they are "
                f"compared ({'; '.join(losses)}); use a lossless one (kind bpe, unigram or bytes, "
                "without lower_case)"
            )


def _tokenizers(sweep: Sweep) -> list[TokenizerConfig]:
    """The different tokenizers of trials, as far as random draws of the space tell."""
    varies = any(key.startswith("data.tokenizer") for key in sweep.space.keys)
    source = random.Random(0)
    tokenizers = [
        trial_experiment(sweep, sweep.space.draw(source), threads=1).data.tokenizer
        for _ in range(DRAWS if varies else 1)
    ]
    return [each for place, each in enumerate(tokenizers) if each not in tokenizers[:place]]


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
