"""Learning from a trained model: the distance from its predictions, and its part in a step.

The loss is (1 - weight) nats + weight t^2 KL(teacher || student), over the whole vocabulary and
with both at temperature t (Hinton et al. 2015, arXiv 1503.02531).

B batch   T segment length   N = B * T rows, R some of them   D d_model   V vocabulary
E entries of the head, its words and one for each tail
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from model.language_model import LanguageModel
from model.softmax import AdaptiveSoftmax
from model.state import StreamState

# Rows times words that are there at a time. On a CPU so many stay in its cache; a GPU has room for
# more and waits for each part's launches: 25,000 tokens of 33,000 words would have 800 parts.
_MOST_ENTRIES, _MOST_ENTRIES_OF_GPU = 2**20, 2**25


def mean_kl(
    student: AdaptiveSoftmax,
    h_BTD: Tensor,
    teacher: AdaptiveSoftmax,
    taught_BTD: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """Mean over tokens of KL(teacher || student) in nats, exact over all words.

    Log-probabilities are divided by the temperature and normalised again. Gradients flow into the
    student alone. No table of N x V is ever there: rows are taken some at a time and, where both
    softmaxes have the same cutoffs, cluster by cluster.
    """
    h_ND, taught_ND = h_BTD.flatten(0, -2), taught_BTD.detach().flatten(0, -2)
    pair = _Pair(student, teacher, temperature)
    weights = [weight for weight in student.parameters() if weight.requires_grad]
    if torch.is_grad_enabled():
        total: Tensor = _SumOfKL.apply(pair, taught_ND, h_ND, *weights)  # type: ignore[no-untyped-call]
        return total / len(h_ND)
    return torch.stack([pair.kl(*rows) for rows in pair.rows(taught_ND, h_ND)]).sum() / len(h_ND)


@dataclass(frozen=True)
class _Pair:
    student: AdaptiveSoftmax
    teacher: AdaptiveSoftmax
    temperature: float

    def rows(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """The rows of all tensors side by side, some at a time."""
        on_cpu = tensors[0].device.type == "cpu"
        entries = _MOST_ENTRIES if on_cpu else _MOST_ENTRIES_OF_GPU
        most = max(1, entries // self.student.bounds[-1])
        return zip(*(torch.split(tensor, most) for tensor in tensors), strict=True)

    def kl(self, taught_RD: Tensor, h_RD: Tensor) -> Tensor:
        """The sum over rows.

        What a tail adds is its probability by the teacher times the KL within it.
        """
        alike = self.student.bounds == self.teacher.bounds
        log_probs = self.log_probs if alike else self._of_all
        with torch.no_grad():
            wanted_RE, wanted_tails = log_probs(self.teacher, taught_RD)
        found_RE, found_tails = log_probs(self.student, h_RD)
        total = (wanted_RE.exp() * (wanted_RE - found_RE)).sum()
        tails = zip(wanted_tails, found_tails, strict=True)
        for tail, (wanted_RV, found_RV) in enumerate(tails, self.student.bounds[0]):
            probability_RV = (wanted_RV + wanted_RE[:, tail, None]).exp()
            total = total + (probability_RV * (wanted_RV - found_RV)).sum()
        return total

    def log_probs(self, softmax: AdaptiveSoftmax, h_RD: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Log-probabilities of the head's entries, and of the words within each tail.

        With p of a tail and p(w) within it at temperature 1, the tail has in proportion
        sum_w (p p(w))^(1/t) = p^(1/t) sum_w p(w)^(1/t).
        """
        t, head_RE = self.temperature, softmax.head_logits(h_RD)
        logits = [softmax.tail_logits(tail, h_RD) for tail in range(len(softmax.tables))]
        if t == 1.0:
            return head_RE.log_softmax(-1), [logit_RV.log_softmax(-1) for logit_RV in logits]
        masses = [(logit / t).logsumexp(-1) - logit.logsumexp(-1) / t for logit in logits]
        # Of a word of the head log (1^(1/t)); a number that all entries have in common cancels.
        words_RE = torch.zeros_like(head_RE[:, : softmax.bounds[0]])
        mass_RE = torch.cat([words_RE, *(mass_R[:, None] for mass_R in masses)], dim=1)
        entry_RE = (head_RE / t + mass_RE).log_softmax(-1)
        return entry_RE, [(logit_RV / t).log_softmax(-1) for logit_RV in logits]

    def _of_all(self, softmax: AdaptiveSoftmax, h_RD: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Log-probabilities of all words."""
        return (softmax.log_prob(h_RD) / self.temperature).log_softmax(-1), []


@dataclass(frozen=True)
class TaughtRows:
    """A teacher's predictions of N tokens, as far as KLs from it under the same softmax need them.

    The teacher's mean of another's log-probabilities is m h - log Z - sum_j p_j log Z_j: logits are
    linear in the hidden states h, so of the teacher's V probabilities only the mean row m of the
    tables is kept, and those p_j of the tails.
    """

    softmax: AdaptiveSoftmax
    mean_ND: Tensor
    tail_NJ: Tensor
    entropy_N: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, softmax: AdaptiveSoftmax, taught_ND: Tensor) -> "TaughtRows":
        """Those of a teacher's hidden states."""
        pair, words = _Pair(softmax, softmax, 1.0), softmax.bounds[0]
        parts = list[tuple[Tensor, Tensor, Tensor]]()
        for (taught_RD,) in pair.rows(taught_ND):
            entry_RE, tails = pair.log_probs(softmax, taught_RD)
            mean_RD, entropy_R = entry_RE.exp() @ softmax.head, -_mean(entry_RE, entry_RE)
            if softmax.head_projection is not None:
                mean_RD = mean_RD @ softmax.head_projection
            of_tails = zip(tails, softmax.tables, softmax.projections, strict=True)
            for tail, (word_RV, table, projection) in enumerate(of_tails, words):
                word_RV = word_RV + entry_RE[:, tail, None]
                mean_RD = mean_RD + word_RV.exp() @ table @ projection
                entropy_R -= _mean(word_RV, word_RV - entry_RE[:, tail, None])
            parts.append((mean_RD, entry_RE[:, words:].exp(), entropy_R))
        return cls(softmax, *(torch.cat(part) for part in zip(*parts, strict=True)))

    @torch.no_grad()
    def kl(self, h_ND: Tensor) -> Tensor:
        """KL(teacher || what has these hidden states) in nats, of each token (N,)."""
        softmax, parts = self.softmax, list[Tensor]()
        for h_RD, mean_RD, tail_RJ in _Pair(softmax, softmax, 1.0).rows(
            h_ND, self.mean_ND, self.tail_NJ
        ):
            kl_R = softmax.head_logits(h_RD).logsumexp(-1) - (mean_RD * h_RD).sum(-1)
            for tail, probability_R in enumerate(tail_RJ.unbind(-1)):
                kl_R = kl_R + probability_R * softmax.tail_logits(tail, h_RD).logsumexp(-1)
            parts.append(kl_R)
        return torch.cat(parts) - self.entropy_N


def _mean(log_prob_RV: Tensor, value_RV: Tensor) -> Tensor:
    return (log_prob_RV.exp() * value_RV).sum(-1)


class _SumOfKL(torch.autograd.Function):
    """The gradient is made in the forward pass, while the tables of some rows are there.

    The loss is linear in the sum: the backward pass multiplies the gradient by one number.
    """

    @staticmethod
    def forward(ctx: Any, pair: _Pair, taught_ND: Tensor, h_ND: Tensor, *weights: Tensor) -> Tensor:
        """The sum over all rows."""
        totals, of_h = list[Tensor](), list[Tensor]()
        gradients = [torch.zeros_like(weight) for weight in weights]
        for taught_RD, h_RD in pair.rows(taught_ND, h_ND.detach()):
            with torch.enable_grad():
                total = pair.kl(taught_RD, h_RD.requires_grad_())
                of_rows, *parts = torch.autograd.grad(total, [h_RD, *weights])
            totals.append(total.detach())
            of_h.append(of_rows)
            for gradient, part in zip(gradients, parts, strict=True):
                gradient += part
        ctx.save_for_backward(torch.cat(of_h), *gradients)
        return torch.stack(totals).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        """Of the student's hidden states and weights."""
        return None, None, *(above * gradient for gradient in ctx.saved_tensors)


@dataclass(frozen=True)
class Teacher:
    """A trained model in evaluation mode, and what its predictions count in a student's loss."""

    model: LanguageModel
    weight: float
    temperature: float

    def __post_init__(self) -> None:
        self.model.eval().requires_grad_(False)

    def initial_state(self, streams: int) -> StreamState:
        """Of streams that have seen nothing; keys and values are kept, as in an evaluation."""
        return self.model.initial_state(streams, cached=True)

    def flops_per_token(self, segment: int, mass_J1: Sequence[float]) -> float:
        """Of its pass: all tails are computed, whatever part of the tokens is in them."""
        costs = self.model.flops_per_token(None, segment, mass_J1)
        return costs.total - costs.softmax + self.model.softmax.flops([1.0] * len(mass_J1))


@dataclass
class Lesson:
    """The teacher's part in one step, called with each part of a batch as `training.step` says.

    Attributes:
        stream: what the teacher's streams carry before the step.
        carried: what they carry after it, part by part.
        kl_rows: KL in nats times the rows of each part.
    """

    teacher: Teacher
    student: LanguageModel
    stream: StreamState
    carried: list[StreamState] = field(default_factory=list)
    kl_rows: list[Tensor] = field(default_factory=list)

    def __call__(self, part: slice, input_BT: Tensor, h_BTD: Tensor, nats: Tensor) -> Tensor:
        """The loss of these rows."""
        weight, temperature = self.teacher.weight, self.teacher.temperature
        with torch.no_grad():
            taught_BTD, state, _ = self.teacher.model(input_BT, self.stream.rows(part))
        self.carried.append(state)
        softmaxes = (self.student.softmax, h_BTD, self.teacher.model.softmax, taught_BTD)
        kl = mean_kl(*softmaxes, temperature)
        self.kl_rows.append(kl.detach() * len(input_BT))
        loss = weight * temperature**2 * kl
        # Not 0 times nats: that would compute their gradient.
        return loss if weight == 1.0 else loss + (1.0 - weight) * nats
