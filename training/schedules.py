"""Learning rates as pure functions of the step."""

import math
from collections.abc import Callable
from functools import partial

from training.config import OptimiserConfig


def decay(schedule: str, progress: float, final: float) -> float:
    """Factor of the peak learning rate: 1 at progress 0, `final` at progress 1."""
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return 1.0 + (final - 1.0) * progress
    assert schedule == "cosine", schedule
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


def warmup_steps(config: OptimiserConfig, steps: int) -> int:
    """Steps of warm-up: as given, else a tenth of all and at most 100."""
    return min(100, steps // 10) if config.warmup_steps is None else config.warmup_steps


def learning_rate(config: OptimiserConfig, step: int, steps: int) -> float:
    """Learning rate of one step: linear warm-up, then the schedule.

    With w steps of warm-up it rises from lr / (w + 1) at step 0; the peak stands at step w, and
    the schedule ends at lr * final at step `steps - 1`.
    """
    warmup = warmup_steps(config, steps)
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    span = steps - 1 - warmup
    progress = min(1.0, (step - warmup) / span) if span > 0 else 1.0
    return config.lr * decay(config.schedule, progress, config.final or 0.0)


def rate_of(config: OptimiserConfig, steps: int) -> Callable[[int], float]:
    """The learning rate as a function of the step alone."""
    return partial(learning_rate, config, steps=steps)
