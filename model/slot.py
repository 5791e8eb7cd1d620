"""One residual slot: the norms, and the weighted sum of what its candidates add.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks import BLOCKS, Candidate
from model.blocks.base import NORM_EPS, Block
from model.config import NO_OPTIONS, ModelOptions
from model.ops import Dropout, add_dropped
from model.state import Segment

# The (candidate index, weight) pairs that are computed in a slot; weight None = 1.
Terms = Sequence[tuple[int, Tensor | None]]

# The new residual stream, memory and states, and the auxiliary loss.
Result = tuple[Tensor, Tensor | None, tuple[Tensor | None, ...], Tensor | None]
RunSlot = Callable[..., Result]


class ScaleNorm(nn.Module):
    """g x / |x| with one trained number g (Nguyen and Salazar 2019, arXiv 1910.05895, Eq. 5).

    g begins as sqrt(D), so that a channel begins with a mean square of 1.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((), d_model**0.5))

    def forward(self, x_D: Tensor) -> Tensor:
        """The rows at length g."""
        return self.weight * F.normalize(x_D, dim=-1, eps=NORM_EPS)


class ReZero(nn.Module):
    """The factor of a slot's block, 0 at first (Bachlechner et al. 2020, arXiv 2003.04887)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))


# By its name in `model.norm`.
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,
    # Zhang and Sennrich 2019, arXiv 1910.07467, Eq. 4.
    "rms": partial(nn.RMSNorm, eps=NORM_EPS),
    "scale": ScaleNorm,
}


class Slot(nn.Module):
    """x + sum_k w_k delta_k with delta_k = f_k(norm_k([memory; x])): pre-norm, one per candidate.

    With `norm_position` post delta_k = norm_k(x + f_k([memory; x])) - x, so that one candidate of
    weight 1 gives the norm of the papers, and identity adds nothing; with `rezero` delta_k =
    a_k f_k([memory; x]). With `token_shift` f_k reads half of each row from the row before.

    The slot owns one memory of detached inputs, as long as its greediest candidate reads, and keeps
    it up to date whatever is computed; every candidate takes the tail it needs. The state of a
    candidate that is not computed is lost: it then begins with what it makes of the memory.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        d_model: int,
        dropout: Dropout,
        options: ModelOptions = NO_OPTIONS,
    ) -> None:
        super().__init__()
        self.labels = tuple(candidate.label for candidate in candidates)
        assert len(set(self.labels)) == len(self.labels), self.labels
        self.dropout, self.post = dropout.residual, options.norm_position == "post"
        # Channels that come from the row before, and whether a row more is remembered for them.
        self.shifted = d_model // 2 if options.token_shift else 0
        self.row_before = int(options.token_shift)
        self.blocks = nn.ModuleDict()
        self.norms = nn.ModuleDict()
        self.factors = nn.ModuleDict()
        for candidate in candidates:
            assert not candidate.missing, candidate
            if hasattr(nn.ModuleDict, candidate.label):
                raise ValueError(
                    f"model.candidates: the label {candidate.label!r} is a name of torch's own; "
                    "choose another"
                )
            block = BLOCKS[candidate.kind].block(candidate, d_model, dropout)
            self.blocks[candidate.label] = block
            if next(block.parameters(), None) is None:
                continue
            if options.rezero:
                self.factors[candidate.label] = ReZero()
            else:
                self.norms[candidate.label] = NORMS[options.norm](d_model)

    def block(self, label: str) -> Block:
        """The block of a candidate."""
        return cast(Block, self.blocks[label])

    def parts(self, label: str) -> list[nn.Module]:
        """All modules that are a candidate's own."""
        return [held[label] for held in (self.blocks, self.norms, self.factors) if label in held]

    def memory_rows(self, label: str) -> int:
        """Rows of inputs before the segment that a candidate reads."""
        block = self.block(label)
        return 0 if block.adds_nothing else block.memory_rows + self.row_before

    def forward(
        self,
        x_BTD: Tensor,
        memory_BMD: Tensor | None,
        segment: Segment,
        states: tuple[Tensor | None, ...],
        terms: Terms,
    ) -> Result:
        """Apply the candidates that `terms` names to the residual stream.

        Memory and the candidates' states are returned as the next segment needs them. The
        auxiliary loss is the weighted sum of the blocks', or None; no gradient flows from it into
        the weights of the terms.
        """
        out_BTD, aux = x_BTD, None
        next_states: list[Tensor | None] = [None] * len(states)
        for index, weight in terms:
            label = self.labels[index]
            block = self.block(label)
            if block.adds_nothing:
                continue
            c_BSD = self._read(label, x_BTD, memory_BMD, segment)
            carried = states[index]
            if carried is None and memory_BMD is not None and not segment.cached:
                carried = self._state_of(label, memory_BMD, segment)
            delta_BTD, state, block_aux = block(c_BSD, segment, carried)
            out_BTD = self._add(label, out_BTD, x_BTD, delta_BTD, weight)
            next_states[index] = None if state is None else state.detach()
            if block_aux is not None:
                block_aux = block_aux if weight is None else weight.detach() * block_aux
                aux = block_aux if aux is None else aux + block_aux
        return out_BTD, _next_memory(memory_BMD, x_BTD), tuple(next_states), aux

    def _read(
        self, label: str, x_BTD: Tensor, memory_BMD: Tensor | None, segment: Segment
    ) -> Tensor:
        """What a block reads: the rows of the memory that it needs, and the segment."""
        # Where keys and values are cached, the block's state stands for the memory.
        rows = self.row_before if segment.cached else self.memory_rows(label)
        c_BSD = x_BTD
        if rows:
            assert memory_BMD is not None
            c_BSD = torch.cat([memory_BMD[:, -rows:], x_BTD], dim=1)
        return self._normed(label, c_BSD, rows, segment)

    def _normed(self, label: str, c_BSD: Tensor, rows: int, segment: Segment) -> Tensor:
        """The rows as the block reads them, of which the first `rows` are memory."""
        if not self.post and label in self.norms:
            c_BSD = self.norms[label](c_BSD)
        if not self.row_before:
            return c_BSD
        own, before = torch.split(c_BSD, [c_BSD.shape[2] - self.shifted, self.shifted], dim=2)
        # A norm may make something of rows that hold no token, and a stream begins with nothing.
        before = segment.without_invalid(before, rows)
        return torch.cat([own[:, 1:], before[:, :-1]], dim=2)

    def _add(
        self,
        label: str,
        out_BTD: Tensor,
        x_BTD: Tensor,
        delta_BTD: Tensor,
        weight: Tensor | None,
    ) -> Tensor:
        """The residual stream with what a candidate makes of x, so many times."""
        if self.post and label in self.norms:
            sum_BTD = add_dropped(x_BTD, delta_BTD, self.dropout, self.training)
            normed_BTD = self.norms[label](sum_BTD)
            if weight is None and out_BTD is x_BTD:
                return cast(Tensor, normed_BTD)
            return add_dropped(out_BTD, normed_BTD - x_BTD, 0.0, self.training, weight)
        if label in self.factors:
            factor = cast(ReZero, self.factors[label]).weight
            weight = factor if weight is None else factor * weight
        return add_dropped(out_BTD, delta_BTD, self.dropout, self.training, weight)

    @torch.no_grad()
    def _state_of(self, label: str, memory_BMD: Tensor, segment: Segment) -> Tensor | None:
        """What a candidate would carry if it had read the memory, and nothing before it."""
        block, rows = self.block(label), memory_BMD.shape[1]
        if not getattr(block, "carries_state", False) or rows == self.row_before:
            return None
        c_BMD = self._normed(label, memory_BMD, rows, segment)
        _, state, _ = block(c_BMD, segment.before(rows - self.row_before), None)
        return state


class BuffersKept:
    """Within it a pass may count what it likes in buffers; afterwards they are as before.

    For a pass that is none of the training's: a slot that is computed again, a step that is only
    looked at. It can be entered again, as a backward pass that is taken twice does.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.kept: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> None:
        self.kept = [(buffer, buffer.clone()) for buffer in self.module.buffers()]

    @torch.no_grad()
    def __exit__(self, *error: object) -> None:
        for buffer, before in self.kept:
            buffer.copy_(before)
        self.kept = []


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
