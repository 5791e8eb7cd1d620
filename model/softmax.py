"""Adaptive softmax (Grave et al. 2017) and the adaptive embedding that can share its tables.

The vocabulary, sorted by falling frequency, is cut into a head and J tails. The head's softmax
is over its words and one entry per tail; a tail has its own softmax over its words.

B batch   T segment length   N = B * T rows   D d_model   E width of the head   V vocabulary
J tails
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import SoftmaxConfig
from model.ops import to_device


class ClusterTables(nn.Module):
    """The tables of the clusters: the head's rows of width D or E, each tail's of its own width.

    A narrower head is the factorised embedding of ALBERT (Lan et al. 2020, arXiv 1909.11942,
    section 3.1), for all words where there are no tails: its rows and `head_projection` (E, D)
    stand for a table of V x D, in the embedding, and transposed in the softmax.

    `projections[t]` (d_t, D) takes a hidden state to tail t's width, and a row of tail t's table
    back to width D. Tail t starts from N(0, 0.02) and its projection from N(0, 1 / d_t): logits
    and embeddings of all clusters then start at one scale.
    """

    # Rows at the end of the head, behind its words.
    rows_per_tail = 0

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        config: SoftmaxConfig,
        d_embedding: int | None = None,
    ) -> None:
        super().__init__()
        config.check_vocabulary(vocabulary_size)
        self.bounds = (*config.cutoffs, vocabulary_size)
        self.d_model = d_model
        head_width = d_model if d_embedding is None else d_embedding
        rows = self.bounds[0] + self.rows_per_tail * len(config.cutoffs)
        self.head = _normal(rows, head_width, std=0.02)
        self.head_projection = (
            None if d_embedding is None else _normal(head_width, d_model, std=head_width**-0.5)
        )
        self.tables = nn.ParameterList()
        self.projections = nn.ParameterList()
        for tail, width in enumerate(config.tail_widths(head_width)):
            words = self.bounds[tail + 1] - self.bounds[tail]
            self.tables.append(_normal(words, width, std=0.02))
            self.projections.append(_normal(width, d_model, std=width**-0.5))

    def by_cluster(self, id_N: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """The head's entry of each id, and of each tail the places of its ids and their table rows.

        An id of a tail has the tail's entry. All results are on the tables' device. To find the
        rows of a tail the host must know their number: where the ids are on a GPU it waits for
        each. Ids on the CPU cost no wait, wherever the tables are; ValueError where they are not of
        this vocabulary.
        """
        self._check(id_N)
        words, rows = self.bounds[0], []
        entry_N = id_N.clamp(max=words - 1)
        for tail, (low, high) in enumerate(pairwise(self.bounds)):
            row_R = ((id_N >= low) & (id_N < high)).nonzero().flatten()
            entry_N = entry_N.index_fill(0, row_R, words + tail)
            rows += [row_R, id_N[row_R] - low]
        entry_N, *rows = to_device([entry_N, *rows], self.head.device)
        return entry_N, list(zip(rows[::2], rows[1::2], strict=True))

    def embed(self, ids_BT: Tensor) -> Tensor:
        """The embeddings of the ids times sqrt(D) (Baevski and Auli 2018), where the tables are."""
        entry_N, tails = self.by_cluster(ids_BT.flatten())
        out_ND = F.embedding(entry_N.clamp(max=self.bounds[0] - 1), self.head)
        if self.head_projection is not None:
            # Not in bfloat16: the residual stream would have its type, and round every sum.
            out_ND = (out_ND @ self.head_projection).to(out_ND.dtype)
        for (row_R, word_R), table, projection in zip(
            tails, self.tables, self.projections, strict=True
        ):
            tail_RD = F.embedding(word_R, table) @ projection
            out_ND = out_ND.index_copy(0, row_R, tail_RD.to(out_ND.dtype))
        # With tables from N(0, 0.02) the residual stream gets the size of what slots add to it.
        return out_ND.view(*ids_BT.shape, -1) * self.d_model**0.5

    def _check(self, id_N: Tensor) -> None:
        # Elsewhere it would stop the device in every step.
        if id_N.device.type != "cpu":
            return
        lowest, highest = (int(end) for end in id_N.aminmax())
        if lowest < 0 or highest >= self.bounds[-1]:
            raise ValueError(
                f"ids from {lowest} to {highest}, but the vocabulary has 0 to "
                f"{self.bounds[-1] - 1}; encode the text with the tokenizer of this model"
            )

    def embedding_flops(self, mass_J1: Sequence[float]) -> float:
        """FLOPs of `embed` per token: look-ups are free, tails and a narrow head are projected."""
        return self._head_projection_flops() + sum(
            2.0 * mass * projection.numel()
            for mass, projection in zip(mass_J1[1:], self.projections, strict=True)
        )

    def _head_projection_flops(self) -> float:
        """Of every token, those of the tails too."""
        return 0.0 if self.head_projection is None else 2.0 * self.head_projection.numel()


class AdaptiveSoftmax(ClusterTables):
    """Log-probabilities of the next id; without cutoffs a plain softmax.

    There are no biases; the layout is that of torch.nn.AdaptiveLogSoftmaxWithLoss: `head` holds
    the head's words and then a row per tail. Results are float32 or wider. A tail that no target
    of a batch lies in gets a gradient of zero (in torch's module: none).
    """

    rows_per_tail = 1

    def nll(self, h_BTD: Tensor, target_BT: Tensor) -> Tensor:
        """-log p(target) in nats; a tail is computed only where a target lies in it.

        On a GPU, targets that are still on the CPU save a wait for each tail (`by_cluster`).
        """
        h_ND = h_BTD.flatten(0, -2)
        entry_N, tails = self.by_cluster(target_BT.flatten())
        tail_parts = []
        for tail, (row_R, word_R) in enumerate(tails):
            logit_RV = self.tail_logits(tail, h_ND[row_R])
            tail_parts.append((row_R, F.cross_entropy(logit_RV, word_R, reduction="none")))
        nll_N = F.cross_entropy(self.head_logits(h_ND), entry_N, reduction="none")
        for row_R, nll_R in tail_parts:
            nll_N = nll_N.index_add(0, row_R, nll_R)
        return nll_N.view(target_BT.shape)

    def log_prob(self, h_BTD: Tensor) -> Tensor:
        """The log-probabilities (B, T, V) of all ids."""
        head = self.head_logits(h_BTD).log_softmax(-1)
        words = self.bounds[0]
        parts = [head[..., :words]]
        for tail in range(len(self.tables)):
            within = self.tail_logits(tail, h_BTD).log_softmax(-1)
            parts.append(head[..., words + tail, None] + within)
        return torch.cat(parts, dim=-1)

    def head_logits(self, h_ND: Tensor) -> Tensor:
        """Of the head's words and then of the tails, one for each."""
        if self.head_projection is not None:
            h_ND = F.linear(h_ND, self.head_projection)
        return _wide(F.linear(h_ND, self.head))

    def tail_logits(self, tail: int, h_ND: Tensor) -> Tensor:
        """Of the words of a tail."""
        return _wide(F.linear(F.linear(h_ND, self.projections[tail]), self.tables[tail]))

    def flops(self, mass_J1: Sequence[float]) -> float:
        """FLOPs of `nll` per token, given the part of the targets in each cluster."""
        tails = zip(mass_J1[1:], self.tables, self.projections, strict=True)
        return (
            2.0 * self.head.numel()
            + self._head_projection_flops()
            + sum(
                2.0 * mass * (table.numel() + projection.numel())
                for mass, table, projection in tails
            )
        )


def _normal(rows: int, columns: int, *, std: float) -> nn.Parameter:
    return nn.Parameter(torch.empty(rows, columns).normal_(std=std))


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
