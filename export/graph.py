"""A saved model as one function of ids and memories, for any number of streams and tokens.

What streams carry is a dictionary of tensors in and a dictionary of tensors out, of fixed sizes and
zero for streams that start; `seen` counts their tokens and so says which rows hold one.

B batch   T segment length   D d_model   V vocabulary   N tensors
"""

from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.blocks import form_of
from model import LanguageModel
from model.softmax import ClusterTables
from model.state import Segment

SEEN = "seen"
Memories = dict[str, Tensor]


class GraphModel(nn.Module):
    """The log-probabilities (B, T, V) of the next ids, and what the streams carry on.

    It takes a derived model in evaluation mode and changes its blocks. ValueError: a kind of block
    has no form that a graph can hold.
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model.eval()
        with torch.no_grad():
            for slot in self.model.slots:
                for label in slot.labels:
                    slot.blocks[label] = form_of(slot.blocks[label])
        self.eval().requires_grad_(False)

    def forward(self, ids_BT: Tensor, memories: Memories) -> tuple[Tensor, Memories]:
        """Read a segment of every stream."""
        segment = Segment(memories[SEEN], ids_BT.shape[1], cache={})
        x_BTD = embedded(self.model.tables, ids_BT)
        carried = {SEEN: memories[SEEN] + segment.length}
        slots, tied = self.model.slots, self.model.tied
        for number, own in enumerate(tied.own):
            slot = slots[tied.module_of(number)]
            states: list[Tensor | None] = [None] * len(slot.labels)
            states[own[0]] = memories.get(f"state_{number:03}")
            before = memories.get(f"before_{number:03}")
            x_BTD, before, after, _ = slot(x_BTD, before, segment, tuple(states), [(own[0], None)])
            carried |= _present(f"state_{number:03}", after[own[0]])
            carried |= _present(f"before_{number:03}", before)
        return self.model.log_prob(self.model.norm(x_BTD)), dict(sorted(carried.items()))

    def zeros(self, batch: int) -> Memories:
        """What so many streams carry that have seen nothing, in the order of the names."""
        state = self.model.initial_state(batch, cached=True)
        begun = {SEEN: state.seen_B}
        for number, before in enumerate(state.memory):
            begun |= _present(f"before_{number:03}", before)
        with torch.no_grad():
            _, carried = self(torch.zeros(batch, 1, dtype=torch.int64), begun)
        return {name: torch.zeros_like(tensor) for name, tensor in carried.items()}


def _present(name: str, tensor: Tensor | None) -> Memories:
    return {} if tensor is None or not tensor.numel() else {name: tensor}


def embedded(tables: ClusterTables, ids_BT: Tensor) -> Tensor:
    """`ClusterTables.embed` with every table read for every id: what lies elsewhere counts 0.

    An id that the vocabulary lacks lies outside of the last table, so that whatever runs the graph
    refuses it.
    """
    words = tables.bounds[-1]
    ids_BT = torch.where(ids_BT < 0, words, ids_BT)
    tails = list(pairwise(tables.bounds))
    entry_BT = ids_BT.clamp(max=tables.bounds[0] - 1) if tails else ids_BT
    out_BTD = F.embedding(entry_BT, tables.head)
    if tables.head_projection is not None:
        out_BTD = out_BTD @ tables.head_projection
    for tail, (low, high) in enumerate(tails):
        inside_BT = ids_BT >= low
        if high < words:
            inside_BT = inside_BT & (ids_BT < high)
        word_BT = torch.where(inside_BT, ids_BT - low, 0)
        table = cast(Tensor, tables.tables[tail])
        tail_BTD = F.embedding(word_BT, table) @ tables.projections[tail]
        out_BTD = torch.where(inside_BT[..., None], tail_BTD, out_BTD)
    return out_BTD * tables.d_model**0.5
