"""Scores and their errors, against texts drawn many times."""

import numpy as np
import pytest

from nas.statistics.paired_scores import (
    Score,
    discretisation_gap,
    error_of_mean,
    mean_score,
    score_of,
)


def test_a_score_is_total_nats_over_total_tokens() -> None:
    nats_NB = np.array([[2.0, 4.0], [3.0, 0.0]])
    score = score_of(nats_NB, np.array([[2.0, 2.0], [1.0, 0.0]]))
    assert score.nats_per_token == 9 / 5
    assert score.tokens == 5
    assert sorted(score.nats_P) == [2, 3, 4]


def test_parts_are_streams_or_long_runs_of_them() -> None:
    many = score_of(np.ones((50, 40)), np.ones((50, 40)))
    assert len(many.nats_P) == 40
    few = score_of(np.ones((50, 3)), np.ones((50, 3)))
    assert len(few.nats_P) == 33
    assert few.nats_P.sum() == 150
    assert few.nats_P.min() >= 4


def test_the_error_is_the_spread_over_texts() -> None:
    """The deviation of the figure over 400 texts is what one text says of itself."""
    generator = np.random.default_rng(0)
    tokens_P = generator.integers(5, 50, size=32).astype(float)
    scores = [
        Score(tokens_P * (2 + generator.normal(scale=0.3, size=32)), tokens_P) for _ in range(400)
    ]
    spread = np.std([score.nats_per_token for score in scores])
    said = np.sqrt(np.mean([score.standard_error**2 for score in scores]))
    assert said == pytest.approx(spread, rel=0.15)


def test_differences_are_paired() -> None:
    generator = np.random.default_rng(1)
    tokens_P = np.full(20, 10.0)
    text_P = generator.normal(scale=5, size=20)
    one = Score(30 + text_P, tokens_P)
    two = Score(29 + text_P + generator.normal(scale=0.1, size=20), tokens_P)
    mean, error = one.less(two)
    assert mean == pytest.approx(one.nats_per_token - two.nats_per_token)
    difference_P = (one.nats_P - two.nats_P) / 10
    assert error == pytest.approx(np.std(difference_P, ddof=1) / np.sqrt(20))
    assert error < one.standard_error / 10


def test_one_part_has_no_error() -> None:
    with pytest.raises(ValueError, match="needs two parts of validation text, found 1"):
        score_of(np.ones((1, 1)), np.ones((1, 1)))


def test_the_error_of_a_mean_over_draws_has_both_sources() -> None:
    tokens_P = np.full(4, 10.0)
    alike = Score(np.array([20.0, 20.0, 20.0, 20.0]), tokens_P)
    other = Score(np.array([24.0, 24.0, 24.0, 24.0]), tokens_P)
    assert mean_score([alike, other]).nats_per_token == pytest.approx(2.2)
    assert error_of_mean([alike, other]) == pytest.approx(0.2)
    rough = Score(np.array([18.0, 22.0, 19.0, 21.0]), tokens_P)
    assert error_of_mean([rough, rough]) == pytest.approx(rough.standard_error)
    both = [rough, Score(rough.nats_P + 4, tokens_P)]
    assert error_of_mean(both) == pytest.approx((rough.standard_error**2 + 0.2**2) ** 0.5)


def test_the_gap_by_hand() -> None:
    tokens_P = np.full(4, 10.0)
    noise_P = np.array([0.0, 1.0, -1.0, 0.0])
    drawn = [Score(nats + noise_P, tokens_P) for nats in (21.0, 21.0, 25.0, 20.0)]
    gap = discretisation_gap(Score(np.full(4, 19.0), tokens_P), drawn, drawn[-1])
    assert gap.soft.nats_per_token == 1.9
    assert gap.soft.standard_error == 0
    assert gap.sampled.nats_per_token == pytest.approx((2.1 + 2.1 + 2.5 + 2.0) / 4)
    assert gap.one_hot.nats_per_token == 2.0
    assert gap.ratio == pytest.approx(np.exp(0.1), abs=1e-6)
    error = np.std(noise_P / 10, ddof=1) / 2
    assert gap.ratio_error == pytest.approx(np.exp(0.1) * error, abs=1e-6)
    assert (gap.draws, gap.tokens) == (4, 40)
