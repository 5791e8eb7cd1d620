"""The temperature of the Gumbel softmax, a pure function of the step."""

import math
from collections.abc import Callable

from nas.search.config import TauConfig

# Of the progress from 0 to 1, the first value, the last one, and the number of stairs.
TAU_SCHEDULES: dict[str, Callable[[float, float, float, int], float]] = {
    "constant": lambda progress, start, end, stairs: start,
    "linear": lambda progress, start, end, stairs: start + (end - start) * progress,
    # Half a cosine: flat at both ends.
    "cosine": lambda progress, start, end, stairs: (
        end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * progress))
    ),
    # `end` is reached, it is not a decay rate.
    "exponential": lambda progress, start, end, stairs: start * (end / start) ** progress,
    # Equal geometric stairs, the first at start and the last at end.
    "step": lambda progress, start, end, stairs: (
        start * (end / start) ** (min(int(progress * stairs), stairs - 1) / (stairs - 1))
    ),
}


def tau_at(config: TauConfig, step_index: int, *, alpha_start: int, steps: int) -> float:
    """Temperature of one step; steps count from 0.

    The clock begins with alpha's first step: until then tau is `start`. The last step,
    `steps - 1`, has `end`.
    """
    span = steps - 1 - alpha_start
    elapsed = step_index - alpha_start
    progress = min(max(elapsed / span, 0.0), 1.0) if span > 0 else float(elapsed >= 0)
    # Both ends as they were given: the formulas would round them.
    if progress == 0.0:
        return config.start
    if progress == 1.0 and config.schedule != "constant":
        return config.end
    return TAU_SCHEDULES[config.schedule](progress, config.start, config.end, config.stairs)
