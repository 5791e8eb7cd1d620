"""What a search costs, in FLOPs and in trainings of a layout."""

from collections.abc import Sequence

from nas.search.estimators import HARD
from nas.search.plan import SearchPlan

# Of a forward pass: a training step also has the gradients of the activations and of the weights,
# alpha's own pass those of the activations alone.
TRAINING, ALPHA_PASS = 3.0, 2.0


def search_flops(
    plan: SearchPlan, candidate_flops: Sequence[float], rest: float, slots: int
) -> list[float]:
    """FLOPs of each step of a search for each token of a batch, validation left out.

    From the forward FLOPs per token of each candidate, and of the rest, which is embedding and
    softmax. A drawn candidate counts as the mean of all.
    """
    mean = sum(candidate_flops) / len(candidate_flops)

    def forward(estimator: str) -> float:
        drawn = HARD.get(estimator)
        computed = len(candidate_flops) if drawn is None else min(drawn, len(candidate_flops))
        return rest + slots * computed * mean

    def passes(step: int) -> float:
        weights = TRAINING * forward(plan.estimator(step))
        if plan.config.alpha.data == "shared" or not plan.alpha_due(step):
            return weights
        return weights + ALPHA_PASS * forward(plan.config.alpha_estimator)

    return [passes(step) for step in range(plan.steps)]
