"""Evaluation streams: every token but the very first is scored exactly once.

B streams, T tokens of a segment, N tokens in all.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from data.tensors import to_tensor
from data.tokens import TokenArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class EvaluationBatch:
    """One segment of every stream; only targets under `score_BT` count. `first`: reset memory."""

    input_BT: "Tensor"
    target_BT: "Tensor"
    score_BT: "Tensor"
    first: bool


class EvaluationStreams:
    """Targets 1 to N - 1 in B intervals whose lengths differ by at most one.

    Stream b feeds contiguous text from up to `warm` tokens before its interval to the interval's
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
        warm: int = 0,
        words: int | None = None,
    ) -> None:
        """Share the targets out.

        Args:
            tokens: the ids of a split.
            streams: intervals read side by side.
            segment: inputs of each stream in one batch.
            warm: unscored tokens before each interval. With windows of W tokens in L attention
                slots, L * (W - 1) gives the result of a single stream.
            words: how many words the tokens stand for, where that is known.

        Raises:
            ValueError: there is no target.
        """
        assert streams >= 1
        assert segment >= 1
        assert warm >= 0
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
        self._start_B = np.maximum(self._first_target_B - 1 - warm, 0)
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

    def __len__(self) -> int:
        """Number of batches in a pass."""
        return -(-self._longest // self._segment)

    def __iter__(self) -> Iterator[EvaluationBatch]:
        """Yield the batches of one pass, and make sure that it scored every target."""
        counted = 0
        for start in range(0, self._longest, self._segment):
            column_T = np.arange(start, min(start + self._segment, self._longest))
            target_BT = self._start_B + 1 + column_T
            score_BT = (target_BT >= self._first_target_B) & (target_BT < self._end_B)
            target_BT = np.minimum(target_BT, self._end_B - 1)
            counted += int(score_BT.sum())
            yield EvaluationBatch(
                input_BT=to_tensor(self._tokens[target_BT - 1]),
                target_BT=to_tensor(self._tokens[target_BT]),
                score_BT=to_tensor(score_BT),
                first=start == 0,
            )
        assert counted == self.scored, f"scored {counted} of {self.scored} targets"
