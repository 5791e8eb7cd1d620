"""What a search's settings come to: tau, alpha's first step and rate, draws, FLOPs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nas.search.config import HARD, SearchConfig, alpha_steps
from nas.search.tau import tau_at
from training.optim import decay

ALPHA_TRAVEL = 10.0
# Few large steps make pi sure of nothing: at 0.4, three like candidates come to the margins of a
# real search (benchmarks/records/short_searches.md). So a short search moves alpha less instead of
# faster.
MOST_ALPHA_LR = 0.05
# FLOPs in forward passes: a training step also has the gradients of the activations and of the
# weights, alpha's own pass those of the activations alone.
TRAINING, ALPHA_PASS = 3.0, 2.0


@dataclass(frozen=True)
class SearchPlan:
    """Schedules of one search as pure functions of the step.

    `steps` are those of the weights; `memory` is in rows, `segment` in tokens of one stream.
    """

    config: SearchConfig
    steps: int
    memory: int
    segment: int

    @property
    def alpha_steps(self) -> range:
        """The steps in which alpha moves, if it learns."""
        return alpha_steps(self.config, self.steps)

    @property
    def alpha_start(self) -> int:
        """First step in which alpha moves."""
        return self.alpha_steps.start

    def draw(self, step: int) -> int:
        """The number of the draw that stands in this step."""
        return step // self.resample_every

    @property
    def resample_every(self) -> int:
        """Steps for which one draw stands.

        A new hard draw every segment makes attention read memory rows that other subnets made;
        held for as long as the memory reaches back plus one, most rows are the subnet's own.
        So those passes decide that fill a memory: the weights' always, alpha's where it reads a
        text of its own (split). A next_batch step of alpha reads the weights' memory and leaves
        none, so its estimator has no say. The noise is the same for both either way.
        """
        if self.config.resample_every != "auto":
            return self.config.resample_every
        hold = max(4, math.ceil(self.memory / self.segment) + 1)
        if self.config.alpha.data == "split" and self.config.alpha_estimator in HARD:
            return hold * self.config.alpha.every
        return hold if self.config.weights_estimator in HARD else 1

    def alpha_due(self, step: int) -> bool:
        """Whether alpha moves in this step."""
        return self.config.alpha_learns and step in self.alpha_steps

    def alpha_lr(self, step: int) -> float:
        """Alpha's learning rate."""
        return self.alpha_peak_lr * self._alpha_decay(step)

    def _alpha_decay(self, step: int) -> float:
        last = max(self.steps - 1 - self.alpha_start, 1)
        return decay(self.config.alpha.schedule, (step - self.alpha_start) / last, 0.0)

    @property
    def alpha_peak_lr(self) -> float:
        """Alpha's learning rate at its first step."""
        return self.alpha_auto_lr if self.config.alpha.lr == "auto" else self.config.alpha.lr

    @cached_property
    def alpha_auto_lr(self) -> float:
        """The peak where `search.alpha.lr` is auto.

        It lets alpha move ALPHA_TRAVEL in all if every step agrees, or less where that would take
        more than MOST_ALPHA_LR a step.
        """
        total = sum(map(self._alpha_decay, self.alpha_steps))
        return min(ALPHA_TRAVEL / max(total, 1.0), MOST_ALPHA_LR)

    def tau(self, step: int) -> float:
        """Temperature of this step."""
        return tau_at(self.config.tau, step, alpha_start=self.alpha_start, steps=self.steps)


def search_flops(
    plan: SearchPlan,
    candidate_flops: Sequence[float],
    rest: float,
    slots: int,
) -> list[float]:
    """FLOPs of each step of a search for each token of a batch, validation left out.

    From the forward FLOPs per token of each candidate, and of the rest, which is embedding and
    softmax. A drawn candidate counts as the mean of all; the weights' own pass computes one.
    """
    mean, estimator = sum(candidate_flops) / len(candidate_flops), plan.config.weights_estimator

    def forward(drawn: int | None) -> float:
        if drawn is None:
            return rest + slots * sum(candidate_flops)
        return rest + slots * min(drawn, len(candidate_flops)) * mean

    def passes(step: int) -> float:
        drawn, shared = HARD.get(estimator), plan.config.alpha.data == "shared"
        weights = TRAINING * forward(1 if estimator in HARD and not shared else drawn)
        if shared or not plan.alpha_due(step):
            return weights
        return weights + ALPHA_PASS * forward(HARD.get(plan.config.alpha_estimator))

    return [passes(step) for step in range(plan.steps)]
