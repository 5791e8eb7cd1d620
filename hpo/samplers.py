"""Samplers and pruners of Optuna, by the names of the experiment file."""

import warnings
from collections.abc import Callable
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
from optuna.study import Study
from optuna.trial import FrozenTrial

from hpo.config import WILCOXON_P, PrunerConfig, SweepConfig
from hpo.study import number_of

STARTUP = 10
POPULATION = 10
PRUNER_STARTUP = 5
PRUNER_WARMUP = 1
PRUNER_FACTOR = 3


def _tpe(config: SweepConfig, seed: int) -> BaseSampler:
    # All three explicitly, because Optuna 4.9 and 5.0 differ in their defaults.
    single = len(config.objectives) == 1
    conditional = any(parameter.when for parameter in config.space.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return TPESampler(
            n_startup_trials=config.sampler.startup or STARTUP,
            multivariate=single,
            group=single and conditional,
            constant_liar=True,
            seed=seed,
        )


def _random(config: SweepConfig, seed: int) -> BaseSampler:
    return RandomSampler(seed=seed)


def _nsga2(config: SweepConfig, seed: int) -> BaseSampler:
    return NSGAIISampler(population_size=config.sampler.population or POPULATION, seed=seed)


def _gp(config: SweepConfig, seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return GPSampler(
            n_startup_trials=config.sampler.startup or STARTUP,
            warn_independent_sampling=False,
            seed=seed,
        )


# The points of grid are enqueued with all their values; nothing is left to draw.
SAMPLERS: dict[str, Callable[[SweepConfig, int], BaseSampler]] = {
    "tpe": _tpe,
    "random": _random,
    "grid": _random,
    "nsga2": _nsga2,
    "gp": _gp,
}


class NumberedSampler(BaseSampler):
    """The configured sampler, made anew for each trial with a seed of the trial's own number.

    So the same history gives the same suggestion whichever worker asks, two workers never draw the
    same numbers, and a trial that is run again draws what it drew before.
    """

    def __init__(self, config: SweepConfig) -> None:
        self._config = config
        self._sampler: BaseSampler | None = None

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Begin with fresh numbers."""
        sampler, number = self._config.sampler, number_of(trial)
        seed = int(np.random.SeedSequence([sampler.seed, number]).generate_state(1)[0])
        self._sampler = SAMPLERS[sampler.kind](self._config, seed)
        self._sampler.before_trial(study, trial)

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

    @property
    def _inner(self) -> BaseSampler:
        assert self._sampler is not None, "Optuna calls before_trial first"
        return self._sampler


def first_pruned_step(config: PrunerConfig, validate_every: int) -> int:
    """The search step before which a pruner stops no trial; 0 of one that minds no steps."""
    if config.kind == "median":
        warmup = PRUNER_WARMUP if config.warmup is None else config.warmup
        # Optuna prunes from n_warmup_steps on, that step included.
        return warmup * validate_every + 1
    if config.kind in ("successive_halving", "hyperband"):
        return config.min_steps or validate_every
    return 0


def _none(config: PrunerConfig, first_step: int) -> BasePruner:
    return NopPruner()


def _median(config: PrunerConfig, first_step: int) -> BasePruner:
    return MedianPruner(
        n_startup_trials=config.startup or PRUNER_STARTUP,
        n_warmup_steps=first_step,
    )


def _successive_halving(config: PrunerConfig, first_step: int) -> BasePruner:
    return SuccessiveHalvingPruner(
        min_resource=first_step,
        reduction_factor=config.factor or PRUNER_FACTOR,
    )


def _hyperband(config: PrunerConfig, first_step: int) -> BasePruner:
    return HyperbandPruner(
        min_resource=first_step,
        reduction_factor=config.factor or PRUNER_FACTOR,
    )


def _wilcoxon(config: PrunerConfig, first_step: int) -> BasePruner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return WilcoxonPruner(p_threshold=WILCOXON_P if config.p is None else config.p)


PRUNERS: dict[str, Callable[[PrunerConfig, int], BasePruner]] = {
    "none": _none,
    "median": _median,
    "successive_halving": _successive_halving,
    "hyperband": _hyperband,
    "wilcoxon": _wilcoxon,
}


def make_pruner(config: PrunerConfig, validate_every: int) -> BasePruner:
    """The pruner for values that are reported at search steps (wilcoxon: at places of seeds)."""
    return PRUNERS[config.kind](config, first_pruned_step(config, validate_every))
