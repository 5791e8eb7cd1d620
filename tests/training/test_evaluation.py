"""The measures that follow from the totals of a pass."""

import math

import pytest

from training.evaluation import Evaluation


def test_the_perplexities_are_powers_of_each_other() -> None:
    found = Evaluation(nats=3199.2, tokens=1000, bytes=4300, words=780)
    assert found.word_perplexity == pytest.approx(math.exp(3199.2 / 780))
    assert found.word_perplexity == pytest.approx(found.perplexity ** (1000 / 780))
    # The figures of the literature: 24.5 a token and 60.5 a word at 1000 tokens in 780 words.
    assert found.perplexity == pytest.approx(24.5, abs=0.05)
    assert found.word_perplexity == pytest.approx(60.5, abs=0.2)


@pytest.mark.parametrize("words", [None, 0])
def test_without_words_nothing_is_said_of_them(words: int | None) -> None:
    found = Evaluation(nats=10.0, tokens=5, bytes=20, words=words)
    assert found.word_perplexity is None
    assert list(found.row()) == ["nats_per_token", "perplexity", "bits_per_byte", "tokens", "bytes"]


def test_with_words_the_row_has_both_numbers() -> None:
    row = Evaluation(nats=10.0, tokens=5, bytes=20, words=4).row()
    assert row["words"] == 4
    assert row["word_perplexity"] == pytest.approx(math.exp(2.5))
    assert math.isfinite(Evaluation(nats=1e9, tokens=5, bytes=20, words=4).word_perplexity or 0)
