"""The measures that follow from the totals of a pass."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from data import EvaluationStreams
from tests.model.tiny import candidate, language_model
from training import evaluation
from training.evaluation import Evaluation, evaluate, evaluate_cells


def test_the_perplexities_are_powers_of_each_other() -> None:
    found = Evaluation(nats=3199.2, tokens=1000, bytes=4300, words=780)
    assert found.word_perplexity == pytest.approx(math.exp(3199.2 / 780))
    # Of words of a thousand tokens each it is no number.
    assert "word_perplexity" not in replace(found, words=4).row()
    assert found.word_perplexity == pytest.approx(found.perplexity ** (1000 / 780))
    # The figures of the literature: 24.5 a token and 60.5 a word at 1000 tokens in 780 words.
    assert found.perplexity == pytest.approx(24.5, abs=0.05)
    assert found.word_perplexity == pytest.approx(60.5, abs=0.2)


@pytest.mark.parametrize(
    ("memory", "segment", "most", "passes"),
    [
        (32, 2, {}, 13),  # 100 tokens a stream, 8 of them at once
        (32, 2, {"MOST_TOKENS": 12}, 25),  # of three streams
        (32, 2, {"MOST_MEETINGS": 3 * 32 * 6}, 17),
        (32, 3, {}, 18),  # 16 pairs, one alone, and the last, which is shorter
        (32, 16, {}, 7),  # a segment is longer than a quarter of the memory
        (4, 1, {}, 100),
        (0, 2, {}, 50),
    ],
)
def test_short_segments_are_read_together(
    memory: int, segment: int, most: dict[str, int], passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in most.items():
        monkeypatch.setattr(evaluation, name, value)
    model = language_model([[candidate("attention", memory=memory)], [candidate("dense")]])
    text = np.random.default_rng(0).integers(model.vocabulary_size, size=301).astype(np.uint16)
    streams = EvaluationStreams(text, streams=3, segment=segment)
    calls: list[int] = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    how = {"byte_length_V": None, "device": torch.device("cpu")}
    found = evaluate(model, streams, **how)
    handle.remove()
    assert len(calls) == passes
    wanted = evaluate(model, streams, **how, cached=False)
    assert found.nats == pytest.approx(wanted.nats, abs=1e-10)
    nats, counts = evaluate_cells(model, streams, device=torch.device("cpu"))
    assert nats.shape == counts.shape == (len([*streams]), 3)
    assert float(nats.sum()) == pytest.approx(wanted.nats, abs=1e-10)
