"""Scores of layouts on one text, cut once for all, with their standard errors.

P parts of the text, N segments, B streams.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model import Gap, Measured

_PARTS = 32
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Total nats and scored tokens of each part of a text.

    Two scores of the same text are compared part by part.
    """

    nats_P: Array
    tokens_P: Array

    @property
    def tokens(self) -> int:
        """Scored tokens in all."""
        return int(self.tokens_P.sum())

    @property
    def nats_per_token(self) -> float:
        """Total nats over total tokens."""
        return float(self.nats_P.sum() / self.tokens_P.sum())

    @property
    def standard_error(self) -> float:
        """Of the nats per token, from the spread over the parts of the text."""
        return _error(self.nats_P, self.tokens_P)

    def measured(self, error: float | None = None) -> Measured:
        """The nats as an architecture keeps them, rounded, with this standard error or its own."""
        return Measured(
            nats_per_token=round(self.nats_per_token, 6),
            standard_error=round(self.standard_error if error is None else error, 6),
        )

    def less(self, other: "Score") -> tuple[float, float]:
        """Difference to another score in nats per token and its standard error, paired by part."""
        assert np.array_equal(self.tokens_P, other.tokens_P), "scores of different texts"
        difference_P = self.nats_P - other.nats_P
        mean = float(difference_P.sum() / self.tokens_P.sum())
        return mean, _error(difference_P, self.tokens_P)


def score_of(nats_NB: Array, tokens_NB: Array) -> Score:
    """The score of a pass whose segments and streams were scored each for itself.

    Neighbouring segments are alike, so whole streams are the parts, or, where there are fewer
    than 32, long runs of them. ValueError where there is one part only.
    """
    segments, streams = nats_NB.shape
    runs = np.array_split(np.arange(segments), min(segments, -(-_PARTS // streams)))
    nats_P = np.concatenate([nats_NB[run].sum(axis=0) for run in runs])
    tokens_P = np.concatenate([tokens_NB[run].sum(axis=0) for run in runs])
    scored_P = tokens_P > 0
    if scored_P.sum() < 2:
        raise ValueError(
            f"a standard error needs two parts of validation text, found {int(scored_P.sum())}; "
            "use a longer one, or more data.evaluation_streams"
        )
    return Score(nats_P[scored_P], tokens_P[scored_P])


def mean_score(scores: Sequence[Score]) -> Score:
    """The mean over several nets or layouts, part by part."""
    assert all(np.array_equal(scores[0].tokens_P, score.tokens_P) for score in scores)
    return Score(np.mean([score.nats_P for score in scores], axis=0), scores[0].tokens_P)


def error_of_mean(scores: Sequence[Score]) -> float:
    """Standard error of the mean over draws: that of the text and that of the draws together."""
    spread = statistics.stdev(score.nats_per_token for score in scores) / math.sqrt(len(scores))
    return math.hypot(mean_score(scores).standard_error, spread)


def _error(nats_P: Array, tokens_P: Array) -> float:
    """Of a ratio of sums (Cochran 1977, Eq. 2.46, for a population without end)."""
    parts = len(nats_P)
    residual_P = nats_P - tokens_P * (nats_P.sum() / tokens_P.sum())
    return float(math.sqrt(parts / (parts - 1) * (residual_P**2).sum()) / tokens_P.sum())


def discretisation_gap(soft: Score, drawn: Sequence[Score], one_hot: Score) -> Gap:
    """What discretising costs with the SuperNet's weights, nothing being trained.

    `soft` is of the net whose slots hold every candidate with its pi, `drawn` are of layouts drawn
    from pi, each as often as it was drawn; the ratio is one-hot over soft perplexity.
    """
    difference, error = one_hot.less(soft)
    ratio = math.exp(difference)
    return Gap(
        tokens=soft.tokens,
        soft=soft.measured(),
        sampled=mean_score(drawn).measured(error_of_mean(drawn)),
        one_hot=one_hot.measured(),
        draws=len(drawn),
        ratio=round(ratio, 6),
        ratio_error=round(ratio * error, 6),
    )
