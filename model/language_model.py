"""The Transformer-XL language model, for search (many candidates a slot) and after it (one).

B batch   T segment length   M memory length   D d_model   V vocabulary   J tails   L slots
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.blocks import Candidate
from model.blocks.base import AddUp, Block, Numbers
from model.config import NO_OPTIONS, ModelOptions, SoftmaxConfig
from model.layout import tied_slots
from model.ops import NO_DROPOUT, Dropout, drop
from model.slot import NORMS, BuffersKept, RunSlot, Slot, Terms, run
from model.softmax import AdaptiveSoftmax, ClusterTables
from model.state import Segment, StreamState

_EVER = 2**62  # streams for which an evaluation encodes the distances once
# Per slot what is computed there.
Mix = Sequence[Terms]
_Passes = tuple[AbstractContextManager[None], AbstractContextManager[None]]


@dataclass(frozen=True)
class Costs:
    """FLOPs of the forward pass per token, 2 for a multiply-add of a matrix product.

    The embedding's are the projections of the tails, the slots' stand by label of each candidate.
    """

    embedding: float
    slots: tuple[dict[str, float], ...]
    softmax: float

    @property
    def total(self) -> float:
        """The cost of a model with one candidate in every slot."""
        assert all(len(slot) == 1 for slot in self.slots), "a SuperNet has no total without a mix"
        return self.embedding + self.softmax + sum(sum(slot.values()) for slot in self.slots)


class LanguageModel(nn.Module):
    """Embedding, residual slots, one last norm (unless options say none), adaptive softmax.

    `slots` are the candidates of each slot, every option set. Slots `tie_blocks` apart share the
    weights of each candidate.
    """

    def __init__(
        self,
        slots: Sequence[Sequence[Candidate]],
        *,
        d_model: int,
        vocabulary_size: int,
        softmax: SoftmaxConfig,
        dropout: Dropout = NO_DROPOUT,
        tie_blocks: int | None = None,
        options: ModelOptions = NO_OPTIONS,
    ) -> None:
        super().__init__()
        self.d_model, self.dropout, self.options = d_model, dropout, options
        self.vocabulary_size = vocabulary_size
        # When tied the softmax's own tables are looked up: a state dict holds each tensor once.
        tables = (vocabulary_size, d_model, softmax, options.d_embedding)
        self.embedding = None if softmax.tied else ClusterTables(*tables)
        # Drawn before the slots, so that all layouts of one seed begin with the same: that lowers
        # the noise of their differences (benchmarks/records/score_noise.md).
        adaptive_softmax = AdaptiveSoftmax(*tables)
        self.tied = tied_slots(slots, tie_blocks)
        modules = nn.ModuleList(Slot(held, d_model, dropout, options) for held in self.tied.modules)
        # A ModuleList does not tell a type checker what it holds.
        self.slots = cast(Sequence[Slot], modules)
        normed = options.last_norm and not options.rezero
        self.norm = NORMS[options.norm](d_model) if normed else nn.Identity()
        self.softmax = adaptive_softmax

    @property
    def tables(self) -> ClusterTables:
        """Where the embedding looks ids up."""
        return self.softmax if self.embedding is None else self.embedding

    def initial_state(self, batch: int, *, cached: bool = False) -> StreamState:
        """The state of so many streams that have seen nothing.

        `cached` is for an evaluation: the slots keep keys and values instead of their inputs.
        """
        like, rows = self.tables.head, self._memory_rows()
        if cached:
            rows = [min(m, int(self.options.token_shift)) for m in rows]
        return StreamState(
            memory=tuple(like.new_zeros(batch, m, self.d_model) if m else None for m in rows),
            seen_B=torch.zeros(batch, dtype=torch.int64, device=like.device),
            blocks=tuple((None,) * len(slot.labels) for slot in self._slots_in_order()),
            cache={} if cached else None,
        )

    def forward(
        self,
        ids_BT: Tensor,
        state: StreamState,
        mix: Mix | None = None,
        *,
        recompute: bool = False,
        attention: str | None = None,
        run_slot: RunSlot = run,
        chunk: int | None = None,
    ) -> tuple[Tensor, StreamState, Tensor | None]:
        """Read one segment of every stream, going on where `state` ended.

        Returns what `nll` and `log_prob` take, the state after the segment, and the sum of the
        blocks' auxiliary losses, or None.

        Args:
            ids_BT: best on the CPU, also where the model is on a GPU (`ClusterTables.by_cluster`).
            state: what the streams carry.
            mix: per slot the (index among its module's candidates, weight) pairs that are computed;
                None computes the one candidate of every slot.
            recompute: keep of each slot its inputs alone, and compute it again in the backward
                pass, with the same random numbers; what blocks count, they count once.
            attention: the kernel of attention; None: as the device does it fastest.
            run_slot: what calls a slot: `run`, or what a compiler makes of it.
            chunk: the ids are several segments of so many tokens, read at once with the result of
                one after the other. With kept keys and values only.
        """
        mix = self._only_candidates() if mix is None else mix
        x_BTD = drop(self.tables.embed(ids_BT), self.dropout.embedding, self.training)
        assert state.cache is None or not self.training, "weights must be frozen"
        assert chunk is None or state.cache is not None, "inputs of the memory would be read twice"
        full = state.least_seen >= self.longest_memory
        segment = Segment(state.seen_B, ids_BT.shape[1], state.cache, full, attention, chunk)
        memory, blocks, aux = [], [], None
        slots = self._slots_in_order()
        for slot, terms, *carried in zip(slots, mix, state.memory, state.blocks, strict=True):
            slot_memory, slot_states = carried
            inputs = (slot, x_BTD, slot_memory, segment, slot_states, terms)
            x_BTD, slot_memory, slot_states, slot_aux = (
                checkpoint(run_slot, *inputs, use_reentrant=False, context_fn=_once(slot))
                if recompute
                else run_slot(*inputs)
            )
            memory.append(slot_memory)
            blocks.append(slot_states)
            if slot_aux is not None:
                aux = slot_aux if aux is None else aux + slot_aux
        h_BTD = drop(self.norm(x_BTD), self.dropout.residual, self.training)
        seen_B, least_seen = state.seen_B + segment.length, state.least_seen + segment.length
        next_state = StreamState(tuple(memory), seen_B, tuple(blocks), state.cache, least_seen)
        return h_BTD, next_state, aux

    def nll(self, h_BTD: Tensor, target_BT: Tensor) -> Tensor:
        """-log p(target) in nats, float32 or wider."""
        return self.softmax.nll(h_BTD, target_BT)

    def log_prob(self, h_BTD: Tensor) -> Tensor:
        """Log-probabilities (B, T, V) of the next id, float32 or wider."""
        return self.softmax.log_prob(h_BTD)

    def flops_per_token(self, batch: int | None, segment: int, mass_J1: Sequence[float]) -> Costs:
        """What the forward pass of a segment costs per token.

        The encodings of the distances are computed once for a batch of streams, the memory is
        projected once per segment; without a `batch`, in an evaluation, neither is done again.
        `mass_J1` is the part of the tokens in the head and each tail.
        """
        assert abs(sum(mass_J1) - 1) < 1e-6, mass_J1
        slots = tuple(
            {
                label: block.flops(batch or _EVER, segment, block.memory_rows if batch else 0)
                for label, block in blocks.items()
            }
            for blocks in self._blocks_by_label()
        )
        return Costs(self.tables.embedding_flops(mass_J1), slots, self.softmax.flops(mass_J1))

    def after_step(self, add_up: AddUp) -> None:
        """What blocks do when an optimiser has moved their weights; `add_up` is over processes."""
        for block in (block for slot in self.slots for block in slot.blocks.values()):
            if (act := getattr(block, "after_step", None)) is not None:
                act(add_up)

    def costliest(self) -> Self:
        """The model itself, with the weights that costs are taken of (`Block`)."""
        for block in (block for slot in self.slots for block in slot.blocks.values()):
            getattr(block, "costliest", lambda: None)()
        return self

    @property
    def learnt_costs(self) -> list[str]:
        """Labels of candidates whose work depends on what they have learnt (`Block`)."""
        pairs = [(label, slot.block(label)) for slot in self.slots for label in slot.labels]
        return list(dict.fromkeys(label for label, block in pairs if hasattr(block, "costliest")))

    def describe(self) -> list[dict[str, Any]]:
        """What blocks say of themselves by slot and label; slots of one module say the same."""
        described = []
        for number, blocks in enumerate(self._blocks_by_label()):
            for label, block in blocks.items():
                describe: Callable[[], Numbers] = getattr(block, "describe", dict)
                if numbers := describe():
                    described.append({"block": number, "label": label, "numbers": numbers})
        return described

    @property
    def slots_that_add(self) -> list[bool]:
        """Whether a slot has a candidate of its own that adds something, slot by slot."""
        return [
            any(not block.adds_nothing for block in blocks.values())
            for blocks in self._blocks_by_label()
        ]

    @property
    def longest_memory(self) -> int:
        """Rows of the longest memory of a slot."""
        return max(self._memory_rows(), default=0)

    def _memory_rows(self) -> list[int]:
        """Rows of each slot's memory: as many as its greediest candidate reads."""
        return [
            max((slot.memory_rows(slot.labels[index]) for index in own), default=0)
            for slot, own in zip(self._slots_in_order(), self.tied.own, strict=True)
        ]

    def _slots_in_order(self) -> list[Slot]:
        return [self.slots[self.tied.module_of(slot)] for slot in range(len(self.tied.own))]

    def _blocks_by_label(self) -> list[dict[str, Block]]:
        """Each slot's own candidates; a module that slots share may hold others beside them."""
        return [
            {slot.labels[index]: slot.block(slot.labels[index]) for index in own}
            for slot, own in zip(self._slots_in_order(), self.tied.own, strict=True)
        ]

    def _only_candidates(self) -> Mix:
        assert all(len(own) == 1 for own in self.tied.own), "a SuperNet needs a mix"
        return [[(only, None)] for (only,) in self.tied.own]


def _once(slot: Slot) -> Callable[[], _Passes]:
    """What a slot's first pass and its second one run within."""
    return lambda: (nullcontext(), BuffersKept(slot))
