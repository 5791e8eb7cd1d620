"""One residual slot: the weighted sum of what its candidates add.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from model.blocks import BLOCKS, Block, Candidate
from model.blocks.dense import DenseBlock, DenseOptions, DensePart
from model.ops import Dropout, add_dropped
from model.state import Segment

# The (candidate index, weight) pairs that are computed in a slot; weight None = 1.
Terms = Sequence[tuple[int, Tensor | None]]

# The new residual stream, memory and states, and the auxiliary loss.
Result = tuple[Tensor, Tensor | None, tuple[Tensor | None, ...], Tensor | None]
RunSlot = Callable[..., Result]


class Slot(nn.Module):
    """x + sum_k w_k f_k(norm_k([memory; x])), pre-norm, with one norm per candidate.

    The slot owns one memory of detached inputs, as long as its greediest candidate reads; every
    candidate takes the tail it needs. It is kept up to date whatever is computed. A slot whose
    candidates read none has none. The state of a candidate that is not computed is lost: one that
    carries it from segment to segment then begins with what it makes of the memory. A SuperNet has
    several candidates in a slot, a derived model one.

    With `entangle` dense candidates share the norm and the weights of the widest one, and those
    that are computed together cost what the widest of them costs.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        d_model: int,
        dropout: Dropout,
        *,
        entangle: bool = False,
    ) -> None:
        super().__init__()
        self.labels = tuple(candidate.label for candidate in candidates)
        assert len(set(self.labels)) == len(self.labels), self.labels
        self.dropout = dropout.residual
        self.blocks = nn.ModuleDict()
        self.norms = nn.ModuleDict()
        for candidate in candidates:
            block = BLOCKS[candidate.kind].block(candidate, d_model, dropout)
            self.blocks[candidate.label] = block
            if next(block.parameters(), None) is not None:
                self.norms[candidate.label] = nn.LayerNorm(d_model)
        self.norm_of = {label: label for label in self.norms}
        # Of the candidates that share weights, by label.
        self.widths: dict[str, int] = {}
        if entangle:
            self._entangle(candidates)

    def _entangle(self, candidates: Sequence[Candidate]) -> None:
        """Put parts of the widest dense candidate in the place of the narrower ones."""
        dense = [candidate for candidate in candidates if isinstance(candidate, DenseOptions)]
        self.widths = {candidate.label: candidate.d_ffn for candidate in dense}
        *narrower, widest = sorted(self.widths, key=self.widths.__getitem__)
        whole = cast(DenseBlock, self.blocks[widest])
        for label in narrower:
            self.blocks[label] = DensePart(whole, self.widths[label])
            del self.norms[label]
            self.norm_of[label] = widest

    def block(self, label: str) -> Block:
        """The block of a candidate."""
        return cast(Block, self.blocks[label])

    def weights_of(self, label: str) -> nn.Module:
        """The module that holds a candidate's weights: another's, where it shares them."""
        block = self.blocks[label]
        return block.whole if isinstance(block, DensePart) else block

    def forward(
        self,
        x_BTD: Tensor,
        memory_BMD: Tensor | None,
        segment: Segment,
        states: tuple[Tensor | None, ...],
        terms: Terms,
    ) -> Result:
        """Apply the candidates that `terms` names to the residual stream.

        The memory holds the inputs before it (None where nothing reads them), the states are the
        candidates' own; both are returned as the next segment needs them. The auxiliary loss is
        the weighted sum of the blocks', None where there is none.
        """
        out_BTD, aux = x_BTD, None
        next_states: list[Tensor | None] = [None] * len(states)
        together = [term for term in terms if self.labels[term[0]] in self.widths]
        if len(together) > 1:
            out_BTD = self._add_entangled(out_BTD, together)
            terms = [term for term in terms if self.labels[term[0]] not in self.widths]
        for index, weight in terms:
            label, c_BSD = self.labels[index], x_BTD
            block = self.block(label)
            if block.adds_nothing:
                continue
            # Where keys and values are cached, the block's state stands for the memory.
            if block.memory_rows and not segment.cached:
                assert memory_BMD is not None
                c_BSD = torch.cat([memory_BMD[:, -block.memory_rows :], x_BTD], dim=1)
            if label in self.norm_of:
                c_BSD = self.norms[self.norm_of[label]](c_BSD)
            carried = states[index]
            if carried is None and memory_BMD is not None and not segment.cached:
                carried = self._state_of(label, memory_BMD, segment)
            delta_BTD, state, block_aux = block(c_BSD, segment, carried)
            out_BTD = add_dropped(out_BTD, delta_BTD, self.dropout, self.training, weight)
            next_states[index] = None if state is None else state.detach()
            if block_aux is not None:
                block_aux = block_aux if weight is None else weight * block_aux
                aux = block_aux if aux is None else aux + block_aux
        return out_BTD, _next_memory(memory_BMD, x_BTD), tuple(next_states), aux

    def _add_entangled(self, x_BTD: Tensor, terms: Terms) -> Tensor:
        """Add several candidates of shared weights, computed as one."""
        labels = [self.labels[index] for index, _ in terms]
        widest = self.norm_of[labels[0]]
        whole, norm = cast(DenseBlock, self.blocks[widest]), self.norms[widest]
        weighed = [(self.widths[label], w) for label, (_, w) in zip(labels, terms, strict=True)]
        delta_BTD = whole.mixture(norm(x_BTD), weighed)
        return add_dropped(x_BTD, delta_BTD, self.dropout, self.training)

    @torch.no_grad()
    def _state_of(self, label: str, memory_BMD: Tensor, segment: Segment) -> Tensor | None:
        """What a candidate would carry if it had read the memory, and nothing before it."""
        block = self.block(label)
        if not getattr(block, "carries_state", False):
            return None
        _, state, _ = block(
            self.norms[label](memory_BMD), segment.before(memory_BMD.shape[1]), None
        )
        return state


def run(slot: Slot, *inputs: Any) -> Result:
    """Call a slot with the inputs of its `forward`: what a compiler is given."""
    result: Result = slot(*inputs)
    return result


def _next_memory(memory_BMD: Tensor | None, x_BTD: Tensor) -> Tensor | None:
    """The last M rows of [memory; x], detached, in storage of their own: x can be freed."""
    if memory_BMD is None:
        return None
    rows, segment = memory_BMD.shape[1], x_BTD.shape[1]
    if segment >= rows:
        return x_BTD.detach()[:, segment - rows :].contiguous()
    return torch.cat([memory_BMD[:, segment:], x_BTD.detach()], dim=1)
