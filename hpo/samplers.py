"""Who suggests the next trial, and who stops a bad one early."""

import importlib.util
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
    """Builds the configured sampler anew for each trial, seeded by the trial's number.

    So the same history gives the same suggestion whichever worker asks, and two workers never draw
    the same numbers. One sampler is kept, that of the last trial: a process draws one after another
    (`Queue.lock`).
    """

    def __init__(self, config: SweepConfig) -> None:
        """Check that the sampler can run here.

        Raises:
            ValueError: a package is missing.
        """
        if config.sampler.kind == "gp":
            require_scipy("sampler gp", "sampler.kind tpe")
        self._config = config
        self._sampler: BaseSampler | None = None
        self._number: int | None = None

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """The keys that are drawn together."""
        return self._inner(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Their values."""
        return self._inner(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of one key that is drawn alone."""
        return self._inner(trial).sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Begin with fresh numbers."""
        self._number = None
        self._inner(trial).before_trial(study, trial)

    def _inner(self, trial: FrozenTrial) -> BaseSampler:
        """The sampler of this trial; only that of the last one is kept."""
        if self._sampler is None or trial.number != self._number:
            sampler = self._config.sampler
            seed = int(np.random.SeedSequence([sampler.seed, trial.number]).generate_state(1)[0])
            self._sampler = SAMPLERS[sampler.kind](self._config, seed)
            self._number = trial.number
        return self._sampler


def require_scipy(who: str, instead: str) -> None:
    """Raise ValueError where scipy is not installed."""
    if importlib.util.find_spec("scipy") is None:
        raise ValueError(
            f"{who} needs scipy, which is not installed; run 'pip install scipy', or use {instead}"
        )


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
    require_scipy("pruner wilcoxon", "pruner.kind none")
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
    """The pruner for values that are reported at search steps (wilcoxon: at places of seeds).

    Raises:
        ValueError: a package is missing.
    """
    return PRUNERS[config.kind](config, first_pruned_step(config, validate_every))
