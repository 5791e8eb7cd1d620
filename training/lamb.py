"""LAMB (You et al. 2020, arXiv 1904.00962, Algorithm 2)."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """Adam's direction with decoupled decay, scaled per tensor to the tensor's own norm.

    With phi the identity: r = m / (sqrt(v) + eps) + decay * w, moments bias-corrected, and
    w := w - lr * |w| / |r| * r. Where |w| or |r| is 0 the ratio is 1.

    Differs from the paper: gradients are not normalised first; clip_norm does that where wanted.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every tensor that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, group)

    def _move(self, weight: Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        first, second = group["betas"]
        state["step"] += 1
        steps = float(state["step"])
        state["exp_avg"].lerp_(weight.grad, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(weight.grad, weight.grad, value=1 - second)
        root = (state["exp_avg_sq"] / (1 - second**steps)).sqrt_().add_(group["eps"])
        direction = (state["exp_avg"] / (1 - first**steps)).div_(root)
        direction.add_(weight, alpha=group["weight_decay"])
        own, its = weight.norm(), direction.norm()
        ratio = torch.where((own > 0) & (its > 0), own / its, torch.ones_like(own))
        weight.sub_(direction * (group["lr"] * ratio))
