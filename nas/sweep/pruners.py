"""Who stops a bad trial early."""

import warnings
from collections.abc import Callable

from optuna.exceptions import ExperimentalWarning
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    SuccessiveHalvingPruner,
    WilcoxonPruner,
)

from nas.sweep.config import PrunerConfig
from nas.sweep.samplers import require_scipy

STARTUP = 5
WARMUP = 1
FACTOR = 3
P = 0.1


def _none(config: PrunerConfig, validate_every: int) -> BasePruner:
    return NopPruner()


def _median(config: PrunerConfig, validate_every: int) -> BasePruner:
    warmup = WARMUP if config.warmup is None else config.warmup
    # Optuna prunes from n_warmup_steps on, that step included.
    return MedianPruner(
        n_startup_trials=config.startup or STARTUP, n_warmup_steps=warmup * validate_every + 1
    )


def _successive_halving(config: PrunerConfig, validate_every: int) -> BasePruner:
    return SuccessiveHalvingPruner(
        min_resource=config.min_steps or validate_every, reduction_factor=config.factor or FACTOR
    )


def _hyperband(config: PrunerConfig, validate_every: int) -> BasePruner:
    return HyperbandPruner(
        min_resource=config.min_steps or validate_every, reduction_factor=config.factor or FACTOR
    )


def _wilcoxon(config: PrunerConfig, validate_every: int) -> BasePruner:
    require_scipy("pruner wilcoxon", "pruner.kind none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return WilcoxonPruner(p_threshold=P if config.p is None else config.p)


PRUNERS: dict[str, Callable[[PrunerConfig, int], BasePruner]] = {
    "none": _none,
    "median": _median,
    "successive_halving": _successive_halving,
    "hyperband": _hyperband,
    "wilcoxon": _wilcoxon,
}


def make_pruner(config: PrunerConfig, validate_every: int) -> BasePruner:
    """The pruner for values that are reported at search steps (wilcoxon: at places of seeds).

    Args:
        config: which one, and its options.
        validate_every: steps between the validations of a search.

    Raises:
        ValueError: a package is missing.
    """
    return PRUNERS[config.kind](config, validate_every)
