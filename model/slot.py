"""One residual slot: the weighted sum of what its candidates add.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from model.blocks import BLOCKS, Block, Candidate
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
    """

    def __init__(self, candidates: Sequence[Candidate], d_model: int, dropout: Dropout) -> None:
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

    def block(self, label: str) -> Block:
        """The block of a candidate."""
        return cast(Block, self.blocks[label])

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
        for index, weight in terms:
            label, c_BSD = self.labels[index], x_BTD
            block = self.block(label)
            if block.adds_nothing:
                continue
            # Where keys and values are cached, the block's state stands for the memory.
            if block.memory_rows and not segment.cached:
                assert memory_BMD is not None
                c_BSD = torch.cat([memory_BMD[:, -block.memory_rows :], x_BTD], dim=1)
            if label in self.norms:
                c_BSD = self.norms[label](c_BSD)
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
