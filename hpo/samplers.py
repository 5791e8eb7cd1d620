"""Samplers and pruners of Optuna, by the names of the experiment file."""

import warnings
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from hpo.config import PrunerConfig, SweepConfig
from hpo.study import number_of

_STARTUP, _POPULATION, _PRUNER_FACTOR = 10, 10, 3


def make_sampler(config: SweepConfig, seed: int) -> BaseSampler:
    """The sampler of a sweep; the points of a grid are enqueued with all their values."""
    kind = config.sampler.kind
    if kind in ("random", "grid"):
        return RandomSampler(seed=seed)
    if kind == "nsga2":
        return NSGAIISampler(population_size=config.sampler.population or _POPULATION, seed=seed)
    # All three explicitly, because versions of Optuna differ in their defaults.
    single = len(config.objectives) == 1
    conditional = any(parameter.when for parameter in config.space.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(
            n_startup_trials=config.sampler.startup or _STARTUP,
            multivariate=single,
            group=single and conditional,
            constant_liar=True,
            seed=seed,
        )


class NumberedSampler(BaseSampler):
    """The configured sampler, made anew for each trial with a seed of the trial's own number.

    So the same history gives the same suggestion whichever worker asks, two workers never draw the
    same numbers, and a trial that is run again draws what it drew before.
    """

    def __init__(self, config: SweepConfig) -> None:
        self._config = config
        self._inner = make_sampler(config, config.sampler.seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Begin with fresh numbers."""
        seeds = np.random.SeedSequence([self._config.sampler.seed, number_of(trial)])
        self._inner = make_sampler(self._config, int(seeds.generate_state(1)[0]))
        self._inner.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The keys that are drawn together."""
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Their values."""
        return self._inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of one key that is drawn alone."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)


def make_pruner(config: PrunerConfig, validate_every: int) -> BasePruner:
    """The pruner for values that are reported at training steps."""
    first = config.min_steps or validate_every
    if config.kind == "median":
        return MedianPruner(n_warmup_steps=first)
    if config.kind == "successive_halving":
        return SuccessiveHalvingPruner(min_resource=first, reduction_factor=_PRUNER_FACTOR)
    return NopPruner()
