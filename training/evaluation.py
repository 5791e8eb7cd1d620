"""Evaluation without noise that scores every token once; processes share out its streams."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import torch
from torch import Tensor

from model.ops import to_device
from training.distributed import Ranks
from training.state import Batch

if TYPE_CHECKING:
    from model.language_model import LanguageModel, Mix

# Of a pass that reads several segments: tokens, and how often a query meets a row of the memory.
MOST_TOKENS, MOST_MEETINGS = 1024, 2**20
# exp of more is no number that a file holds.
_LARGEST = 700.0


class EvaluationBatch(Batch, Protocol):
    """One segment of all streams; `score_BT` is true where a target counts."""

    score_BT: Tensor


class Streams(Protocol):
    """The segments of a text that is cut into so many `streams`, read side by side.

    `scored` targets count, which stand for so many `words`, None where that is not known.
    """

    scored: int
    words: int | None
    streams: int

    def part(self, rows: slice) -> Self:
        """The same text, these rows alone."""

    def __iter__(self) -> Iterator[EvaluationBatch]: ...


S = TypeVar("S", bound=Streams)


@dataclass(frozen=True)
class Evaluation:
    """Totals of one pass; every other measure follows from them. Lost text has no bytes."""

    nats: float
    tokens: int
    bytes: int | None
    words: int | None = None

    @property
    def nats_per_token(self) -> float:
        """Mean negative log-likelihood."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """exp(total nats / total tokens), never a mean of perplexities."""
        return math.exp(min(self.nats_per_token, _LARGEST))

    @property
    def bits_per_byte(self) -> float | None:
        """Total bits over the bytes of the raw text that the scored tokens stand for."""
        return None if self.bytes is None else self.nats / (math.log(2) * self.bytes)

    @property
    def word_perplexity(self) -> float | None:
        """exp(total nats / total words), None where words are not known, or no number holds it."""
        nats = self.nats / self.words if self.words else math.inf
        return math.exp(nats) if nats < _LARGEST else None

    def row(self) -> dict[str, float | int | None]:
        """The measures under the names of the run files; those of words only where known."""
        row: dict[str, float | int | None] = {
            "nats_per_token": self.nats_per_token,
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits_per_byte,
            "tokens": self.tokens,
            "bytes": self.bytes,
        }
        if self.word_perplexity is not None:
            row |= {"word_perplexity": self.word_perplexity, "words": self.words}
        return row


def joined(parts: Sequence[Evaluation]) -> Evaluation:
    """The totals of several passes over the same text, as if it were one text."""
    first = parts[0]
    return Evaluation(
        nats=sum(part.nats for part in parts),
        tokens=sum(part.tokens for part in parts),
        bytes=None if first.bytes is None else first.bytes * len(parts),
        words=None if first.words is None else first.words * len(parts),
    )


@torch.inference_mode()
def evaluate(
    model: "LanguageModel",
    streams: Streams,
    *,
    byte_length_V: Tensor | None,
    device: torch.device,
    mix: "Mix | None" = None,
    cached: bool = True,
) -> Evaluation:
    """Score a text once, from empty memories; no random number is drawn.

    `byte_length_V` holds the bytes of raw text that each id stands for (None where text may be
    lost), `mix` a SuperNet's fixed weights. Keys and values are `cached`, or made anew in every
    segment.
    """
    nats = torch.zeros((), dtype=torch.float64, device=device)
    tokens = raw_bytes = 0
    for batch, nll_BT in _read(model, streams, device, mix, cached=cached):
        (row_N,) = to_device([batch.score_BT.flatten().nonzero()], device)
        nats += nll_BT.double().flatten()[row_N].sum()
        scored_N = batch.target_BT[batch.score_BT]
        tokens += scored_N.numel()
        if byte_length_V is not None:
            raw_bytes += int(byte_length_V[scored_N].sum())
    assert tokens == streams.scored, (tokens, streams.scored)
    return Evaluation(
        nats=float(nats),
        tokens=tokens,
        bytes=None if byte_length_V is None else raw_bytes,
        words=streams.words,
    )


@torch.inference_mode()
def evaluate_cells(
    model: "LanguageModel", streams: Streams, *, device: torch.device, mix: "Mix | None" = None
) -> tuple[Tensor, Tensor]:
    """Nats and numbers of scored targets, segments x streams, in float64 on the CPU."""
    nats, tokens = [], []
    for batch, nll_BT in _read(model, streams, device, mix, cached=True):
        nats.append((nll_BT.double().cpu() * batch.score_BT).sum(dim=1))
        tokens.append(batch.score_BT.sum(dim=1).double())
    return torch.stack(nats), torch.stack(tokens)


def _read(
    model: "LanguageModel",
    streams: Streams,
    device: torch.device,
    mix: "Mix | None",
    *,
    cached: bool,
) -> Iterator[tuple[EvaluationBatch, Tensor]]:
    training, state = model.training, None
    model.eval()
    for group in _groups(streams, model.longest_memory if cached else 0):
        rows, length = group[0].input_BT.shape
        if state is None or group[0].first:
            state = model.initial_state(rows, cached=cached)
        ids_BT = torch.cat([batch.input_BT for batch in group], dim=1)
        h_BTD, state, _ = model(ids_BT, state, mix, chunk=length if len(group) > 1 else None)
        nll_BT = model.nll(h_BTD, torch.cat([batch.target_BT for batch in group], dim=1))
        yield from zip(group, torch.split(nll_BT, length, dim=1), strict=True)
    model.train(training)


def _groups(streams: Streams, memory: int) -> Iterator[list[EvaluationBatch]]:
    """Neighbouring segments of one shape that one pass reads."""
    group: list[EvaluationBatch] = []
    for batch in streams:
        shape = batch.input_BT.shape
        whole = len(group) == _segments_at_once(shape[0], shape[1], memory)
        if group and (whole or batch.first or shape != group[0].input_BT.shape):
            yield group
            group = []
        group.append(batch)
    if group:
        yield group


def _segments_at_once(streams: int, segment: int, memory: int) -> int:
    """Segments of a pass: products of a few rows are slow, but each query meets all keys."""
    tokens = min(memory // 4, MOST_TOKENS // streams, MOST_MEETINGS // (streams * max(memory, 1)))
    return max(1, tokens // segment)


def evaluate_shared(ranks: Ranks, streams: S, evaluate: Callable[[S], Evaluation]) -> Evaluation:
    """Score every token once, on one rank each."""
    if ranks.world == 1:
        return evaluate(streams)
    mine = Evaluation(nats=0.0, tokens=0, bytes=0)
    if ranks.count(streams.streams):
        mine = evaluate(streams.part(ranks.rows(streams.streams)))
    nats, tokens, count, lossy_ranks = ranks.total(
        [mine.nats, mine.tokens, mine.bytes or 0, float(mine.bytes is None)]
    )
    assert tokens == streams.scored, (tokens, streams.scored)
    return Evaluation(
        nats=nats,
        tokens=int(tokens),
        bytes=None if lossy_ranks else int(count),
        words=streams.words,
    )
