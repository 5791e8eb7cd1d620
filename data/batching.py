"""Batches of token streams: endless ones for training, and exactly-once ones for evaluation.

Torch is imported only when a batch is asked for: reading a config or a `--help` stays instant.

B streams   T tokens of a segment   N tokens in all   n = (N - 1) // B inputs of a stream
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from data.tokens import TokenArray

if TYPE_CHECKING:
    from torch import Tensor


def to_tensor(array: NDArray[Any]) -> "Tensor":
    """A tensor with its own memory: int64 for ids, bool for masks."""
    import torch

    dtype = np.bool_ if array.dtype == np.bool_ else np.int64
    return torch.from_numpy(np.array(array, dtype=dtype))


@dataclass
class Batch:
    """One segment of every stream. `first`: an epoch or a pass starts, memory must be reset."""

    input_BT: "Tensor"
    target_BT: "Tensor"
    first: bool


class ContextBatches:
    """Batches as a pure function of their index, so a resume needs no iterator state.

    Stream b reads tokens [b n, b n + n); every target is the token after its input in the text.
    The remainder of fewer than B tokens is never a target. An epoch is cut into as few batches as
    segments of T allow, whose widths differ by at most one.

    With a seed every epoch begins at another place of the text, whose end is followed by its
    beginning: streams, segments and the dropped remainder then differ from epoch to epoch.
    """

    def __init__(
        self, tokens: TokenArray, *, batch: int, segment: int, offset_seed: int | None = None
    ) -> None:
        """Lay `batch` streams over the tokens; `segment` is the most inputs of one in a batch."""
        self._row = (len(tokens) - 1) // batch  # inputs of a stream in an epoch
        if self._row < 1:
            raise ValueError(
                f"data.batch: {batch} streams need at least {batch + 1} training tokens, "
                f"but the text has {len(tokens)}; use a smaller batch or more text"
            )
        self._tokens = tokens
        self._start_B1 = np.arange(batch)[:, None] * self._row
        self._offset_seed = offset_seed
        self.streams, self.segment = batch, segment
        self.per_epoch = -(-self._row // segment)
        # The most inputs of a stream in a batch: fewer than `segment` where a stream is short.
        self.width = -(-self._row // self.per_epoch)

    def batch(self, index: int) -> Batch:
        """Batch `index` of an endless run over the text."""
        assert index >= 0
        epoch, place = divmod(index, self.per_epoch)
        start = place * self._row // self.per_epoch
        end = (place + 1) * self._row // self.per_epoch
        # One column more than inputs: the last one is a target only.
        place_BT = self._start_B1 + np.arange(start, end + 1)
        if self._offset_seed is not None:
            drawn = np.random.default_rng([self._offset_seed, epoch])
            place_BT = place_BT + drawn.integers(len(self._tokens))
        token_BT = self._tokens[place_BT % len(self._tokens)]
        return Batch(
            input_BT=to_tensor(token_BT[:, :-1]),
            target_BT=to_tensor(token_BT[:, 1:]),
            first=start == 0,
        )


@dataclass
class EvaluationBatch(Batch):
    """One segment of every stream, of which only the targets under `score_BT` count."""

    score_BT: "Tensor"


class EvaluationStreams:
    """Targets 1 to N - 1 in B intervals whose lengths differ by at most one.

    Stream b feeds contiguous text from up to `context` tokens before its interval to the interval's
    end; only the interval is scored. All streams start at the first batch with fresh memory; one
    with less text before it starts scoring earlier. A stream that has ended repeats its last
    token, unscored, until all have ended. With fewer targets than streams there are fewer streams.
    """

    def __init__(
        self,
        tokens: TokenArray,
        *,
        streams: int,
        segment: int,
        context: int = 0,
        words: int | None = None,
    ) -> None:
        """Share the targets out; ValueError where there is none.

        `streams` intervals are read side by side, `segment` inputs of each in one batch, behind
        `context` unscored ones: with windows of W tokens in L attention slots, L * (W - 1) gives
        the result of a single stream (see `data.context_tokens`). `words` is how many the tokens
        stand for, if known.
        """
        self.words = words
        self.scored = len(tokens) - 1
        if self.scored < 1:
            raise ValueError(
                f"data: an evaluation needs at least 2 tokens, but the text has {len(tokens)}; "
                f"use a longer text"
            )
        self._tokens = tokens
        self._segment = segment
        self.streams = min(streams, self.scored)
        bounds = 1 + np.arange(self.streams + 1) * self.scored // self.streams
        self._first_target_B, self._end_B = bounds[:-1, None], bounds[1:, None]
        self._start_B = np.maximum(self._first_target_B - 1 - context, 0)
        self._longest = int((self._end_B - 1 - self._start_B).max())

    def part(self, rows: slice) -> "EvaluationStreams":
        """Some of the streams, cut as they are among all; their words are not counted."""
        part = copy.copy(self)
        part._first_target_B, part._end_B = self._first_target_B[rows], self._end_B[rows]
        part._start_B = self._start_B[rows]
        part.streams = len(part._start_B)
        part.scored = int((part._end_B - part._first_target_B).sum())
        part.words = None
        return part

    def __iter__(self) -> Iterator[EvaluationBatch]:
        """Yield the batches of one pass."""
        for start in range(0, self._longest, self._segment):
            column_T = np.arange(start, min(start + self._segment, self._longest))
            target_BT = self._start_B + 1 + column_T
            score_BT = (target_BT >= self._first_target_B) & (target_BT < self._end_B)
            # A stream that has ended repeats its last target, which `score_BT` leaves out.
            target_BT = np.minimum(target_BT, self._end_B - 1)
            yield EvaluationBatch(
                input_BT=to_tensor(self._tokens[target_BT - 1]),
                target_BT=to_tensor(self._tokens[target_BT]),
                score_BT=to_tensor(score_BT),
                first=start == 0,
            )
