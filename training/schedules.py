"""Learning rates as pure functions of the step."""

import math

from training.config import OptimiserConfig


def decay(schedule: str, progress: float, final: float) -> float:
    """Factor of the peak learning rate: 1 at progress 0, `final` at progress 1."""
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return 1.0 + (final - 1.0) * progress
    assert schedule == "cosine", schedule
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


def learning_rate(config: OptimiserConfig, step: int, steps: int) -> float:
    """Learning rate of one step: linear warm-up, then the schedule.

    The warm-up rises from lr / (warmup_steps + 1) at step 0; the peak stands at step
    `warmup_steps`, and the schedule ends at lr * final at step `steps - 1`.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / (config.warmup_steps + 1)
    span = steps - 1 - config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / span) if span > 0 else 1.0
    return config.lr * decay(config.schedule, progress, config.final or 0.0)
