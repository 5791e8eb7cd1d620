"""Evaluation: every token but the first is scored once, after its own preceding text."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data import EvaluationBatch, EvaluationStreams

layouts = given(
    length=st.integers(2, 70),
    streams=st.integers(1, 9),
    segment=st.integers(1, 12),
    warm=st.integers(0, 25),
)
properties = settings(max_examples=300, deadline=None, derandomize=True)


class Pass(NamedTuple):
    """A whole pass, its batches joined to one row of N columns for each stream."""

    evaluation: EvaluationStreams
    batches: list[EvaluationBatch]
    input_BN: torch.Tensor
    target_BN: torch.Tensor
    score_BN: torch.Tensor


def run(length: int, streams: int, segment: int, warm: int) -> Pass:
    tokens = np.arange(length, dtype=np.uint16)
    evaluation = EvaluationStreams(tokens, streams=streams, segment=segment, warm=warm)
    batches = list(evaluation)
    return Pass(
        evaluation,
        batches,
        torch.cat([b.input_BT for b in batches], dim=1),
        torch.cat([b.target_BT for b in batches], dim=1),
        torch.cat([b.score_BT for b in batches], dim=1),
    )


@layouts
@properties
def test_every_target_is_scored_exactly_once(
    length: int, streams: int, segment: int, warm: int
) -> None:
    evaluation, _, _, target_BN, score_BN = run(length, streams, segment, warm)
    counts = Counter(target_BN[score_BN].tolist())
    assert counts == Counter(range(1, length))
    assert evaluation.scored == length - 1


@layouts
@properties
def test_streams_feed_contiguous_preceding_text(
    length: int, streams: int, segment: int, warm: int
) -> None:
    _, _, input_BN, target_BN, score_BN = run(length, streams, segment, warm)
    for ids, targets, score in zip(input_BN, target_BN, score_BN, strict=True):
        scored = score.nonzero().flatten().tolist()
        begin, end = scored[0], scored[-1] + 1
        assert scored == list(range(begin, end))
        assert torch.equal(ids[:end], torch.arange(int(ids[0]), int(ids[0]) + end))
        assert torch.equal(targets[:end], ids[:end] + 1)
        # As much warm-up as was asked for, or all the text there is.
        assert begin == min(warm, int(ids[begin]))
        assert begin == warm or ids[0] == 0


@layouts
@properties
def test_intervals_differ_by_at_most_one(
    length: int, streams: int, segment: int, warm: int
) -> None:
    evaluation, _, input_BN, _, score_BN = run(length, streams, segment, warm)
    per_stream = score_BN.sum(dim=1)
    assert len(per_stream) == evaluation.streams == min(streams, length - 1)
    assert per_stream.max() - per_stream.min() <= 1
    assert per_stream.min() >= 1
    assert input_BN.min() >= 0
    assert input_BN.max() < length


@layouts
@properties
def test_only_the_first_batch_resets_and_only_the_last_is_short(
    length: int, streams: int, segment: int, warm: int
) -> None:
    evaluation, batches, _, _, score_BN = run(length, streams, segment, warm)
    assert [b.first for b in batches] == [True] + [False] * (len(evaluation) - 1)
    widths = [b.input_BT.shape[1] for b in batches]
    assert widths[:-1] == [segment] * (len(evaluation) - 1)
    assert 1 <= widths[-1] <= segment
    assert score_BN[:, -1].any()


def test_a_pass_can_be_repeated() -> None:
    evaluation = EvaluationStreams(np.arange(50), streams=3, segment=4, warm=2)
    one, other = (torch.cat([b.target_BT for b in evaluation], dim=1) for _ in range(2))
    assert torch.equal(one, other)


def test_a_bigram_model_gets_the_same_total_whatever_the_layout() -> None:
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 7, 101).astype(np.uint16)
    nll = generator.random((7, 7))
    expected = sum(nll[a, b] for a, b in pairwise(tokens))
    for streams, segment, warm in ((1, 1, 0), (4, 8, 0), (7, 5, 13), (200, 3, 50)):
        total = 0.0
        for b in EvaluationStreams(tokens, streams=streams, segment=segment, warm=warm):
            total += float((nll[b.input_BT, b.target_BT] * b.score_BT.numpy()).sum())
        assert total == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("length", [0, 1])
def test_a_text_without_targets_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 tokens, but the text has {length};"):
        EvaluationStreams(np.zeros(length, dtype=np.uint16), streams=4, segment=8)
