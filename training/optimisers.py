"""Optimisers of the weights."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from training.config import DEFAULT_BETAS, DEFAULT_EPS, OptimiserConfig
from training.lamb import Lamb


def build_optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.Optimizer:
    """An optimiser over all weights; weight decay acts on matrices, not on norms or biases."""
    biases = _head_biases(model)
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": config.weight_decay},
        {"params": [], "weight_decay": 0.0},
    ]
    for parameter in model.parameters():
        decays = parameter.ndim >= 2 and id(parameter) not in biases
        groups[0 if decays else 1]["params"].append(parameter)
    groups = [group for group in groups if group["params"]]
    if config.kind == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum or 0.0)
    eps = config.eps or DEFAULT_EPS[config.kind]
    if config.kind == "adagrad":
        return torch.optim.Adagrad(groups, lr=config.lr, eps=eps)
    betas = config.betas or DEFAULT_BETAS
    if config.kind == "lamb":
        return Lamb(groups, lr=config.lr, betas=betas, eps=eps)
    adam = torch.optim.AdamW if config.kind == "adamw" else torch.optim.Adam
    return adam(groups, lr=config.lr, betas=betas, eps=eps, fused=True)


def _head_biases(model: nn.Module) -> set[int]:
    """The ids of the parameters that blocks name as biases of their heads."""
    return {
        id(getattr(module, name))
        for module in model.modules()
        for name in getattr(module, "head_biases", ())
    }


def slots_of(optimiser: torch.optim.Optimizer) -> tuple[str, ...]:
    """The tensors that an optimiser keeps for each weight it has moved; `step` is a scalar."""
    if isinstance(optimiser, torch.optim.SGD):
        return ("momentum_buffer",) if optimiser.defaults["momentum"] else ()
    if isinstance(optimiser, torch.optim.Adagrad):
        return ("step", "sum")
    assert isinstance(optimiser, torch.optim.Adam | torch.optim.AdamW | Lamb), optimiser
    return ("step", "exp_avg", "exp_avg_sq")


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Give every group the learning rate of this step."""
    for group in optimiser.param_groups:
        group["lr"] = lr


def clip_gradients(parameters: Iterable[nn.Parameter], config: OptimiserConfig) -> Tensor:
    """Clip by value, then each tensor by its norm, then the whole by its norm.

    Returns:
        The norm of the whole gradient before anything was clipped.
    """
    found = [p for p in parameters if p.grad is not None]
    if config.clip_value is None and config.clip_each_norm is None:
        limit = float("inf") if config.clip_norm is None else config.clip_norm
        return nn.utils.clip_grad_norm_(found, limit)
    norm = nn.utils.get_total_norm([p.grad for p in found if p.grad is not None])
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(found, config.clip_value)
    if config.clip_each_norm is not None:
        for parameter in found:
            nn.utils.clip_grad_norm_(parameter, config.clip_each_norm)
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(found, config.clip_norm)
    return norm
