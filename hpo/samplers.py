"""Samplers and pruners of Optuna, by the names of the experiment file."""

import warnings
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    SuccessiveHalvingPruner,
    WilcoxonPruner,
)
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages._heartbeat import BaseHeartbeat
from optuna.study import Study
from optuna.trial import FrozenTrial

from hpo.config import WILCOXON_P, PrunerConfig, SweepConfig
from hpo.study import number_of

_STARTUP, _POPULATION = 10, 10
_PRUNER_STARTUP, _PRUNER_WARMUP, _PRUNER_FACTOR = 5, 1, 3


def make_sampler(config: SweepConfig, seed: int) -> BaseSampler:
    """The sampler of a sweep; the points of a grid are enqueued with all their values."""
    kind, startup = config.sampler.kind, config.sampler.startup or _STARTUP
    if kind in ("random", "grid"):
        return RandomSampler(seed=seed)
    if kind == "nsga2":
        return NSGAIISampler(population_size=config.sampler.population or _POPULATION, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if kind == "gp":
            return GPSampler(n_startup_trials=startup, warn_independent_sampling=False, seed=seed)
        # All three explicitly, because Optuna 4.9 and 5.0 differ in their defaults.
        single = len(config.objectives) == 1
        conditional = any(parameter.when for parameter in config.space.values())
        return TPESampler(
            n_startup_trials=startup,
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
        if isinstance(study._storage, BaseHeartbeat):
            # Optuna's comes after the suggestions; who died before it would never be missed.
            study._storage.record_heartbeat(trial._trial_id)
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


def first_pruned_step(config: PrunerConfig, validate_every: int) -> int:
    """The search step before which a pruner stops no trial; 0 of one that minds no steps."""
    if config.kind == "median":
        warmup = _PRUNER_WARMUP if config.warmup is None else config.warmup
        # Optuna prunes from n_warmup_steps on, that step included.
        return warmup * validate_every + 1
    if config.kind in ("successive_halving", "hyperband"):
        return config.min_steps or validate_every
    return 0


def make_pruner(config: PrunerConfig, validate_every: int) -> BasePruner:
    """The pruner for values that are reported at search steps (wilcoxon: at places of seeds)."""
    first, factor = first_pruned_step(config, validate_every), config.factor or _PRUNER_FACTOR
    if config.kind == "median":
        startup = config.startup or _PRUNER_STARTUP
        return MedianPruner(n_startup_trials=startup, n_warmup_steps=first)
    if config.kind == "successive_halving":
        return SuccessiveHalvingPruner(min_resource=first, reduction_factor=factor)
    if config.kind == "hyperband":
        return HyperbandPruner(min_resource=first, reduction_factor=factor)
    if config.kind == "wilcoxon":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return WilcoxonPruner(p_threshold=WILCOXON_P if config.p is None else config.p)
    return NopPruner()
