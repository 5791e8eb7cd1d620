"""A temperature that is trained beside alpha: tau = floor + softplus(rho). Experimental."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas.config import DEFAULT_FLOOR, TauConfig
from nas.plan import SearchPlan
from training.loop import TrainState


def build_rho(config: TauConfig) -> dict[str, nn.Parameter]:
    """`rho`, with tau at its start; nothing where tau follows a schedule."""
    if config.schedule != "learnable":
        return {}
    above = config.start - _floor(config)
    return {"rho": nn.Parameter(torch.tensor(above + math.log(-math.expm1(-above))))}


def tau_now(plan: SearchPlan, state: TrainState, step: int) -> float | Tensor:
    """The temperature of a step: that of the schedule, or the trained one as it is now."""
    if plan.config.tau.schedule != "learnable":
        return plan.tau(step)
    return _floor(plan.config.tau) + F.softplus(state.parameters["rho"])


def _floor(config: TauConfig) -> float:
    return DEFAULT_FLOOR if config.floor is None else config.floor
