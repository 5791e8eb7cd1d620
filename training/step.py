"""One step of the weights."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from model import Mix, StreamState
from training.config import OptimiserConfig
from training.loop import Batch, Metrics
from training.optimisers import clip_gradients, set_learning_rate
from training.state import TrainState


@dataclass(frozen=True)
class Forward:
    """How losses are computed: device and precision."""

    device: torch.device
    precision: str

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which matrix products run in the asked precision."""
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def loss(
        self, state: TrainState, batch: Batch, stream: StreamState, mix: Mix | None
    ) -> tuple[Tensor, Tensor, StreamState]:
        """Mean nats of the batch, the same with auxiliary losses, and the stream's next state."""
        input_BT = batch.input_BT.to(self.device, non_blocking=True)
        target_BT = batch.target_BT.to(self.device, non_blocking=True)
        with self.autocast():
            h_BTD, stream, aux_loss = state.model(input_BT, stream, mix)
            nats = state.model.nll(h_BTD, target_BT).mean()
        return nats.detach(), nats if aux_loss is None else nats + aux_loss, stream


def stream_at(state: TrainState, name: str, batch: Batch) -> StreamState:
    """The named stream's memories before this batch: empty where the batch starts an epoch."""
    if batch.first:
        state.streams[name] = state.streams[name].reset()
    return state.streams[name]


@dataclass(frozen=True)
class WeightStep:
    """Forward, backward, clip, update.

    Attributes:
        forward: how losses are computed.
        config: how gradients are clipped.
        rate: the learning rate of a step.
    """

    forward: Forward
    config: OptimiserConfig
    rate: Callable[[int], float]

    def __call__(self, state: TrainState, batch: Batch, mix: Mix | None = None) -> Metrics:
        """Train the weights on one batch and carry the memories on."""
        stream = stream_at(state, "weights", batch)
        state.optimisers["weights"].zero_grad(set_to_none=True)
        nats, loss, state.streams["weights"] = self.forward.loss(state, batch, stream, mix)
        torch.autograd.backward([loss])
        return self.update(state, batch, nats)

    def update(self, state: TrainState, batch: Batch, nats: Tensor) -> Metrics:
        """Clip and apply the gradients that stand on the weights."""
        norm = clip_gradients(state.model.parameters(), self.config)
        lr = self.rate(state.step)
        set_learning_rate(state.optimisers["weights"], lr)
        state.optimisers["weights"].step()
        state.loss_sum += nats
        state.loss_steps += 1
        tokens = batch.input_BT.numel()
        state.tokens += tokens
        return {"loss_nats": nats, "grad_norm": norm, "lr": lr, "tokens": tokens}
