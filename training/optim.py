"""Optimisers of the weights, and learning rates as pure functions of the step."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from training.config import (
    DEFAULT_EPS,
    OptimiserConfig,
    RetrainConfig,
    check_warmup,
    steps_in,
)

_FACTOR = "rate_factor"


def build_optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.Optimizer:
    """An optimiser over all weights; weight decay acts on matrices, not on norms or biases.

    A block may give a weight so many times the learning rate (`rate_factors`); its decay, which
    the learning rate multiplies, is that of other weights all the same with adamw and sgd.
    """
    biases, factors = set[int](), dict[int, float]()
    for module in model.modules():
        biases |= {id(getattr(module, name)) for name in getattr(module, "head_biases", ())}
        rates: Mapping[str, float] = getattr(module, "rate_factors", {})
        factors |= {id(getattr(module, name)): factor for name, factor in rates.items()}
    members: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        decays = parameter.ndim >= 2 and id(parameter) not in biases
        members.setdefault((factors.get(id(parameter), 1.0), not decays), []).append(parameter)
    groups: list[dict[str, Any]] = [
        {
            "params": members[factor, bare],
            "weight_decay": 0.0 if bare else config.weight_decay / factor,
            _FACTOR: factor,
        }
        for factor, bare in sorted(members)
    ]
    if config.kind == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    eps = config.eps or DEFAULT_EPS[config.kind]
    if config.kind == "adagrad":
        return torch.optim.Adagrad(groups, lr=config.lr, eps=eps)
    if config.kind == "lamb":
        return Lamb(groups, lr=config.lr, betas=config.betas, eps=eps)
    adam = torch.optim.AdamW if config.kind == "adamw" else torch.optim.Adam
    return adam(groups, lr=config.lr, betas=config.betas, eps=eps, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    """Give every group the learning rate of this step, times the group's factor."""
    for group in optimiser.param_groups:
        group["lr"] = lr * group.get(_FACTOR, 1.0)


def clip_gradients(parameters: Iterable[nn.Parameter], config: OptimiserConfig) -> Tensor:
    """Clip by value, then each tensor by its norm, then the whole by its norm.

    Returns the norm of the whole gradient before anything was clipped.
    """
    trained = [p for p in parameters if p.grad is not None]
    if config.clip_value is None and config.clip_each_norm is None:
        limit = float("inf") if config.clip_norm is None else config.clip_norm
        return nn.utils.clip_grad_norm_(trained, limit)
    norm = nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
    if config.clip_value is not None:
        nn.utils.clip_grad_value_(trained, config.clip_value)
    if config.clip_each_norm is not None:
        gradients = [p.grad for p in trained if p.grad is not None]
        norm_N = torch.stack(torch._foreach_norm(gradients))
        factor_N = (config.clip_each_norm / (norm_N + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, list(factor_N.unbind()))
    if config.clip_norm is not None:
        nn.utils.clip_grad_norm_(trained, config.clip_norm)
    return norm


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, arXiv 1904.00962, Algorithm 2).

    Adam's direction with decoupled decay, scaled per tensor to the tensor's own norm: with phi the
    identity, r = m / (sqrt(v) + eps) + decay * w, moments bias-corrected, and
    w := w - lr * |w| / |r| * r. Where |w| or |r| is 0, and for a single number such as ReZero's
    factor, the ratio is 1.

    Differs from the paper: gradients are not normalised first; clip_norm does that where wanted.
    """

    def __init__(
        self, params: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every tensor that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            if weights := [weight for weight in group["params"] if weight.grad is not None]:
                self._move(weights, group)

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        # All tensors of a group in one call: on a GPU one by one is bound by the calls.
        states = [self._state_of(weight) for weight in weights]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        firsts, seconds = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        steps = [float(state["step"].add_(1)) for state in states]
        first, second = group["betas"]
        torch._foreach_lerp_(firsts, gradients, 1 - first)
        torch._foreach_mul_(seconds, second)
        torch._foreach_addcmul_(seconds, gradients, gradients, 1 - second)
        roots = torch._foreach_div(seconds, [1 - second**step for step in steps])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["eps"])
        directions = torch._foreach_div(firsts, [1 - first**step for step in steps])
        torch._foreach_div_(directions, roots)
        torch._foreach_add_(directions, weights, alpha=group["weight_decay"])
        w_N, r_N = (torch.stack(torch._foreach_norm(each)) for each in (weights, directions))
        ratio_N = torch.where((w_N > 0) & (r_N > 0), w_N / r_N, torch.ones_like(w_N))
        # A single number that begins at 0 (ReZero) would grow by factors alone, and never arrive.
        ratios = [
            ratio if weight.ndim else torch.ones_like(ratio)
            for weight, ratio in zip(weights, ratio_N.unbind(), strict=True)
        ]
        torch._foreach_mul_(directions, [group["lr"] * ratio for ratio in ratios])
        torch._foreach_sub_(weights, directions)

    def _state_of(self, weight: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[weight]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        return state


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
    the schedule ends at lr * min_lr_ratio at step `steps - 1`, where that comes after the peak.
    """
    warmup = warmup_steps(config, steps)
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    span = steps - 1 - warmup
    progress = min(1.0, (step - warmup) / span) if span > 0 else 0.0
    return config.lr * decay(config.schedule, progress, config.min_lr_ratio)


def rate_of(config: OptimiserConfig, steps: int) -> Callable[[int], float]:
    """The learning rate as a function of the step alone."""
    return partial(learning_rate, config, steps=steps)


@dataclass(frozen=True)
class Stages:
    """A retraining's steps from scratch and then at the lower rate, 0 without such a stage."""

    config: RetrainConfig
    first: int
    fine_tune: int

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.first + self.fine_tune

    def rate(self, step: int) -> float:
        """Learning rate of one step."""
        stage = self.config.fine_tune
        if stage is None or step < self.first:
            return learning_rate(self.config.optimiser, step, self.first)
        progress = (step - self.first) / max(self.fine_tune - 1, 1)
        return stage.lr * decay(stage.schedule, progress, 0.0)


def stages_of(config: RetrainConfig, steps_per_epoch: int) -> Stages:
    """The stages, with epochs in steps; ValueError where the warm-up is longer than the first."""
    first = steps_in(config.steps, config.epochs, steps_per_epoch)
    check_warmup(config.optimiser, first)
    stage = config.fine_tune
    last = 0 if stage is None else steps_in(stage.steps, stage.epochs, steps_per_epoch)
    return Stages(config, first, last)
