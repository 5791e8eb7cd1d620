"""One step of the weights, and one that leaves out slots at random.

L slots that add something
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise, starmap

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.distillation import Lesson, Teacher
from model.language_model import LanguageModel, Mix
from model.slot import RunSlot, run
from model.state import StreamState
from training.config import OptimiserConfig
from training.distributed import ALONE, Ranks
from training.optim import clip_gradients, set_learning_rate
from training.state import Batch, Metrics, TrainState

# The first number of the generator's key, so that nothing else draws from the same.
_STREAM = 0x70690003
# What a part of a batch is trained by: from its rows, inputs, hidden states and mean nats.
Objective = Callable[[slice, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Forward:
    """How losses are computed: on which device, in which precision, and how memory is saved.

    Attributes:
        micro_batches: into how many parts the streams of a batch are split, to save memory.
        recompute: whether slots are computed again in the backward pass, to save memory.
        ranks: the processes that share the streams of a batch out.
        attention: the kernel of attention; None: the device's fastest.
        run_slot: what calls a slot: `run`, or what a compiler makes of it (`training.runtime`).
    """

    device: torch.device
    precision: str
    micro_batches: int = 1
    recompute: bool = False
    ranks: Ranks = ALONE
    attention: str | None = None
    run_slot: RunSlot = run

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which matrix products run in the asked precision."""
        if self.precision != "bfloat16":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def accumulate(
        self,
        state: TrainState,
        batch: Batch,
        stream: StreamState,
        mix: Callable[[], Mix | None],
        backward: Callable[[Tensor], None],
        *,
        auxiliary: bool = True,
        objective: Objective | None = None,
    ) -> tuple[Tensor, StreamState]:
        """This rank's share of a batch's mean nats, part by part, and what its streams carry on.

        `mix` makes the mix anew for each part, as a backward pass uses its graph up; every call
        must give the same numbers. `backward` is called with each part's share of the loss, the
        nats unless there is an `objective`, with the blocks' auxiliary losses unless `auxiliary` is
        false.
        """
        rows = batch.input_BT.shape[0]
        mine = self.ranks.rows(rows)
        # They stay on the CPU: only there can the host look at them without waiting.
        input_BT, target_BT = batch.input_BT[mine], batch.target_BT[mine]
        streams, nats_parts = [], []
        count = min(self.micro_batches, len(input_BT))
        bounds = [index * len(input_BT) // count for index in range(count + 1)]
        for part in starmap(slice, pairwise(bounds)):
            share = (part.stop - part.start) / rows
            with self.autocast():
                h_BTD, carried, aux_loss = state.model(
                    input_BT[part],
                    stream.rows(part),
                    mix(),
                    recompute=self.recompute,
                    attention=self.attention,
                    run_slot=self.run_slot,
                )
                trained = nats = state.model.nll(h_BTD, target_BT[part]).mean()
                if objective is not None:
                    trained = objective(part, input_BT[part], h_BTD, nats)
            trained = trained if aux_loss is None or not auxiliary else trained + aux_loss
            backward(share * trained)
            streams.append(carried)
            nats_parts.append(share * nats.detach())
        return torch.stack(nats_parts).sum(), StreamState.join(streams)


def no_mix() -> None:
    """The mix of a model with one candidate in every slot."""


def stream_at(state: TrainState, name: str, batch: Batch) -> StreamState:
    """The named stream's memories before this batch: empty where the batch starts an epoch."""
    if batch.first:
        state.streams[name] = state.streams[name].reset()
    return state.streams[name]


@dataclass(frozen=True)
class WeightStep:
    """Forward, backward, clip as `config` says, update; `rate` is the learning rate of a step.

    With a `teacher`, which reads the same batches, the weights learn from its predictions too.
    """

    forward: Forward
    config: OptimiserConfig
    rate: Callable[[int], float]
    teacher: Teacher | None = None

    def __call__(
        self, state: TrainState, batch: Batch, mix: Callable[[], Mix | None] = no_mix
    ) -> Metrics:
        """Train the weights on one batch and carry the memories on."""
        stream, lesson = stream_at(state, "weights", batch), None
        if self.teacher is not None:
            lesson = Lesson(self.teacher, state.model, stream_at(state, "teacher", batch))
        state.optimisers["weights"].zero_grad(set_to_none=True)
        nats, state.streams["weights"] = self.forward.accumulate(
            state,
            batch,
            stream,
            mix,
            lambda loss: torch.autograd.backward([loss]),
            objective=lesson,
        )
        if lesson is None:
            return self._update(state, batch, {"loss_nats": nats})
        state.streams["teacher"] = StreamState.join(lesson.carried)
        kl = torch.stack(lesson.kl_rows).sum() / len(batch.input_BT)
        return self._update(state, batch, {"loss_nats": nats, "kl_nats": kl})

    def _update(self, state: TrainState, batch: Batch, losses: dict[str, Tensor]) -> Metrics:
        """Add up over the ranks, clip and apply the gradients that stand on the weights."""
        self.forward.ranks.sum_gradients(state.model.parameters(), *losses.values())
        norm = clip_gradients(state.model.parameters(), self.config)
        lr = self.rate(state.step)
        set_learning_rate(state.optimisers["weights"], lr)
        state.optimisers["weights"].step()
        state.model.after_step(self.forward.ranks.sum)
        state.loss_sum += losses["loss_nats"]
        if state.kl_sum is not None:
            state.kl_sum += losses["kl_nats"]
        state.loss_steps += 1
        tokens = batch.input_BT.numel()
        state.tokens += tokens
        return {**losses, "grad_norm": norm, "lr": lr, "tokens": tokens}


def uniform_numbers(seed: int, step: int, count: int) -> NDArray[np.float64]:
    """Numbers from [0, 1) that (seed, step) decide: a resume and every process draw the same."""
    return np.random.default_rng([_STREAM, seed, step]).random(count)


@dataclass(frozen=True)
class LayerDropoutStep:
    """Each slot is left out of a step with probability `rate`; the others' deltas grow.

    Stochastic depth (Huang et al. 2016, arXiv 1603.09382); LayerDrop (Fan et al. 2019, arXiv
    1909.11556) with its rate for every slot. A delta that is kept is divided by 1 - rate, as in
    dropout, so that evaluation takes every slot as it is. A slot that is left out remembers its
    inputs; a state that its block carries is lost, as in a search.

    Differs from the papers: they scale in the evaluation, or not at all.
    """

    weight_step: WeightStep
    rate: float
    seed: int
    draw: Callable[[int, int, int], NDArray[np.float64]] = uniform_numbers

    def __call__(self, state: TrainState, batch: Batch) -> Metrics:
        """Train the weights of the slots that are kept."""
        return self.weight_step(state, batch, lambda: self.mix(state.model, state.step))

    def mix(self, model: LanguageModel, step: int) -> Mix:
        """What is computed in a step of a model with one candidate in every slot.

        Numbers are drawn for slots that add something alone: layouts of one network train alike.
        """
        adding = [slot for slot, adds in enumerate(model.slots_that_add) if adds]
        number_L = self.draw(self.seed, step, len(adding))
        left_out = {
            slot for slot, number in zip(adding, number_L, strict=True) if number < self.rate
        }
        weight = torch.full((), 1.0 / (1.0 - self.rate), device=model.tables.head.device)
        return [
            [] if slot in left_out else [(only, weight)]
            for slot, (only,) in enumerate(model.tied.own)
        ]
