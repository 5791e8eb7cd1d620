"""One step of the search: alpha on its data, then the weights on theirs (PAR, section 3)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from model.language_model import Mix
from nas.search.constraint import Constraint, constrain
from nas.search.estimators import ESTIMATORS, gumbel_noise, on_device
from nas.search.plan import SearchPlan
from training.optim import set_learning_rate
from training.runtime import numbers_of
from training.state import Batch, Batches, Metrics, TrainState
from training.step import WeightStep, stream_at

# The first number of the key of alpha's dropout, so that nothing else draws from the same.
_ALPHA_STREAM = 0x70690002


def build_alpha(slots: int, candidates: int) -> nn.Parameter:
    """alpha_LC at 0: pi is uniform. It lives on the CPU, so that a hard draw costs no sync."""
    return nn.Parameter(torch.zeros(slots, candidates))


def build_alpha_optimiser(alpha_LC: nn.Parameter, plan: SearchPlan) -> torch.optim.Optimizer:
    """Adam over alpha.

    Its eps has a meaning here: Adam takes steps of one size however small the gradient is, so
    with a tiny eps candidates that make no difference drift apart as fast as those that do.
    """
    config = plan.config.alpha
    return torch.optim.Adam(
        [alpha_LC],
        lr=plan.alpha_peak_lr,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
    )


@dataclass(frozen=True)
class SearchStep:
    """Draws once, moves alpha where it is due, then trains the weights under the same draw.

    The two may make different mixes of the draw: a hard one trains the weights of the drawn
    candidates alone, while alpha hears of all of them (`search.alpha.estimator`). `seed` is that
    of the Gumbel noise and of the dropout of alpha's own step; `alpha_batches` are alpha's own
    text (data split); `constraints` bound what pi is expected to cost.
    """

    plan: SearchPlan
    weight_step: WeightStep
    seed: int
    alpha_batches: Batches | None = None
    constraints: tuple[Constraint, ...] = ()
    noise: Callable[[int, int, int, int], Tensor] = gumbel_noise

    def __call__(self, state: TrainState, batch: Batch) -> Metrics:
        """One step of alpha's data mode."""
        if self.plan.config.alpha.data == "shared":
            return self._shared(state, batch)
        if self.plan.alpha_due(state.step):
            # The weights' gradients of the step before would take memory beside alpha's pass.
            state.optimisers["weights"].zero_grad(set_to_none=True)
            self._alpha_step(state, batch)
        return self.weight_step(state, batch, torch.no_grad()(lambda: self.mix(state)))

    def mix(self, state: TrainState) -> Mix:
        """The weights' mix: noise of this step's draw, alpha and tau as they are now."""
        return self._mix(state, self.plan.config.weights_estimator)

    def alpha_mix(self, state: TrainState) -> Mix:
        """The mix of alpha's own step, of the same noise."""
        return self._mix(state, self.plan.config.alpha_estimator)

    def _mix(self, state: TrainState, estimator: str) -> Mix:
        alpha_LC = state.parameters["alpha"]
        noise_LC = self.noise(self.seed, self.plan.draw(state.step), *alpha_LC.shape)
        mix = ESTIMATORS[estimator](alpha_LC, noise_LC, self.plan.tau(state.step))
        if not torch.is_grad_enabled():
            # Zeros for a gradient would move a block that was not drawn (docs/decisions.md, 001).
            mix = [[(k, y) for k, y in terms if y is None or y != 0] for terms in mix]
        return on_device(mix, self.weight_step.forward.device)

    def _alpha_step(self, state: TrainState, batch: Batch) -> None:
        alpha_LC = state.parameters["alpha"]
        name = "weights"  # next_batch: the batch and memory that the weights see next
        if self.alpha_batches is not None:
            index = (state.step - self.plan.alpha_start) // self.plan.config.alpha.every
            name, batch = "alpha", self.alpha_batches.batch(index)
        stream = stream_at(state, name, batch)
        gradient_LC = torch.zeros_like(alpha_LC)

        def backward(loss: Tensor) -> None:
            if not loss.requires_grad:  # every slot drew identity: alpha's gradient is 0
                return
            gradient_LC.add_(*torch.autograd.grad(loss, [alpha_LC], materialize_grads=True))

        forward = self.weight_step.forward
        key = (_ALPHA_STREAM, self.seed, state.step, forward.ranks.rank)
        mix = partial(self.alpha_mix, state)
        # Dropout of its own: the weights' steps draw the same whether alpha has moved or not.
        # Auxiliary losses train blocks: to alpha they would be a price of some kinds alone.
        with _frozen(state.model), numbers_of(key, forward.device):
            _, stream = forward.accumulate(state, batch, stream, mix, backward, auxiliary=False)
        if self.alpha_batches is not None:
            state.streams["alpha"] = stream
        alpha_LC.grad = gradient_LC
        self._update_alpha(state)

    def _shared(self, state: TrainState, batch: Batch) -> Metrics:
        """Weights and alpha on the same batch, from one backward pass."""
        alpha_LC = state.parameters["alpha"]
        alpha_LC.grad = torch.zeros_like(alpha_LC)
        metrics = self.weight_step(state, batch, lambda: self.mix(state))
        if self.plan.alpha_due(state.step):
            self._update_alpha(state)
        return metrics

    def _update_alpha(self, state: TrainState) -> None:
        alpha_LC = state.parameters["alpha"]
        assert alpha_LC.grad is not None, "it has one, if of zeros"
        self.weight_step.forward.ranks.sum([alpha_LC.grad])
        # After the sum over the processes: what depends on alpha alone must not count for each.
        if self.constraints:
            alpha_LC.grad += constrain(alpha_LC.detach(), self.constraints, state.multipliers)
        optimiser = state.optimisers["alpha"]
        set_learning_rate(optimiser, self.plan.alpha_lr(state.step))
        optimiser.step()


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    # autograd.grad over alpha alone is not enough: functions with a backward of their own would
    # compute the weights' gradients all the same, and keep the activations for them.
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
