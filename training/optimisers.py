"""Optimisers of the weights."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from training.config import OptimiserConfig

DEFAULT_BETAS = (0.9, 0.999)
DEFAULT_EPS = 1e-8


def build_optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.Optimizer:
    """An optimiser over all weights; weight decay acts on matrices, not on norms or biases."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.kind == "sgd":
        return torch.optim.SGD(groups, lr=config.lr)
    adam = torch.optim.AdamW if config.kind == "adamw" else torch.optim.Adam
    betas = config.betas or DEFAULT_BETAS
    return adam(groups, lr=config.lr, betas=betas, eps=config.eps or DEFAULT_EPS, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Give every group the learning rate of this step."""
    for group in optimiser.param_groups:
        group["lr"] = lr


def clip_gradients(parameters: Iterable[nn.Parameter], clip_norm: float | None) -> Tensor:
    """Scale the gradients down to a global norm of at most `clip_norm`; return the norm before."""
    limit = float("inf") if clip_norm is None else clip_norm
    return nn.utils.clip_grad_norm_(parameters, limit)
