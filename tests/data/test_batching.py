"""Training batches are contiguous streams with exact targets; evaluation scores each token once."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from data import ContextBatches, EvaluationBatch, EvaluationStreams

sizes = given(extra=st.integers(1, 60), batch=st.integers(1, 6), segment=st.integers(1, 9))
properties = settings(max_examples=100, deadline=None, derandomize=True)


def stream(extra: int, batch: int) -> np.ndarray:
    """Tokens whose value is their position, at least one input for every stream."""
    return np.arange(batch + extra, dtype=np.uint16)


@sizes
@properties
def test_rows_of_consecutive_batches_rejoin_to_the_stream_and_only_the_remainder_is_dropped(
    extra: int, batch: int, segment: int
) -> None:
    tokens = stream(extra, batch)
    batches = ContextBatches(tokens, batch=batch, segment=segment)
    epoch = [batches.batch(i) for i in range(batches.per_epoch)]
    input_BN = torch.cat([b.input_BT for b in epoch], dim=1)
    target_BN = torch.cat([b.target_BT for b in epoch], dim=1)
    row = (len(tokens) - 1) // batch
    assert input_BN.tolist() == [[*range(b * row, (b + 1) * row)] for b in range(batch)]
    assert torch.equal(target_BN, input_BN + 1)
    assert target_BN.flatten().tolist() == [*range(1, batch * row + 1)]


@sizes
@properties
def test_random_offsets_turn_the_text_in_every_epoch(extra: int, batch: int, segment: int) -> None:
    tokens = stream(extra, batch)
    batches = ContextBatches(tokens, batch=batch, segment=segment, offset_seed=3)
    plain = ContextBatches(tokens, batch=batch, segment=segment)
    assert batches.per_epoch == plain.per_epoch
    for epoch in range(3):
        indices = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
        found = [batches.batch(index) for index in indices]
        assert [b.first for b in found] == [index == indices[0] for index in indices]
        input_BN = torch.cat([b.input_BT for b in found], dim=1)
        target_BN = torch.cat([b.target_BT for b in found], dim=1)
        turned = np.roll(tokens, -int(input_BN[0, 0]))
        row = (len(tokens) - 1) // batch
        assert input_BN.flatten().tolist() == turned[: batch * row].tolist()
        assert target_BN.flatten().tolist() == turned[1 : batch * row + 1].tolist()


def test_random_offsets_differ_by_epoch_and_seed_and_repeat_themselves() -> None:
    def starts(seed: int) -> list[int]:
        batches = ContextBatches(stream(50_000, 4), batch=4, segment=5_000, offset_seed=seed)
        return [int(batches.batch(e * batches.per_epoch).input_BT[0, 0]) for e in range(20)]

    assert len(set(starts(0))) == 20
    assert not set(starts(0)) & set(starts(1))
    assert starts(1) == starts(1)


def test_a_batch_is_a_pure_function_of_its_index(tmp_path: Path) -> None:
    stream(50, 3).tofile(tmp_path / "tokens.bin")
    mapped = np.memmap(tmp_path / "tokens.bin", dtype=np.uint16, mode="r")
    batches = ContextBatches(mapped, batch=3, segment=4)
    late = batches.batch(2).input_BT
    late += 1
    assert torch.equal(batches.batch(2).input_BT, late - 1)
    assert batches.batch(2).input_BT.dtype == batches.batch(2).target_BT.dtype == torch.int64


@pytest.mark.parametrize("length", [0, 1, 4])
def test_too_short_a_text_names_both_numbers(length: int) -> None:
    with pytest.raises(ValueError, match=f"4 streams need at least 5 .* the text has {length};"):
        ContextBatches(np.zeros(length, dtype=np.uint16), batch=4, segment=2)
    ContextBatches(np.zeros(5, dtype=np.uint16), batch=4, segment=2)


layouts = given(
    length=st.integers(2, 70),
    streams=st.integers(1, 9),
    segment=st.integers(1, 12),
    context=st.integers(0, 25),
)


class Pass(NamedTuple):
    """A whole pass, its batches joined to one row of N columns for each stream."""

    evaluation: EvaluationStreams
    batches: list[EvaluationBatch]
    input_BN: torch.Tensor
    target_BN: torch.Tensor
    score_BN: torch.Tensor


def run(length: int, streams: int, segment: int, context: int) -> Pass:
    tokens = np.arange(length, dtype=np.uint16)
    evaluation = EvaluationStreams(tokens, streams=streams, segment=segment, context=context)
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
def test_streams_feed_contiguous_preceding_text(
    length: int, streams: int, segment: int, context: int
) -> None:
    _, _, input_BN, target_BN, score_BN = run(length, streams, segment, context)
    for ids, targets, score in zip(input_BN, target_BN, score_BN, strict=True):
        scored = score.nonzero().flatten().tolist()
        begin, end = scored[0], scored[-1] + 1
        assert scored == list(range(begin, end))
        assert torch.equal(ids[:end], torch.arange(int(ids[0]), int(ids[0]) + end))
        assert torch.equal(targets[:end], ids[:end] + 1)
        # As much warm-up as was asked for, or all the text there is.
        assert begin == min(context, int(ids[begin]))
        assert begin == context or ids[0] == 0


@layouts
@properties
def test_every_target_is_scored_once_in_intervals_of_nearly_one_length(
    length: int, streams: int, segment: int, context: int
) -> None:
    evaluation, batches, input_BN, target_BN, score_BN = run(length, streams, segment, context)
    assert sorted(target_BN[score_BN].tolist()) == [*range(1, length)]
    assert evaluation.scored == length - 1
    per_stream = score_BN.sum(dim=1)
    assert len(per_stream) == evaluation.streams == min(streams, length - 1)
    assert per_stream.max() - per_stream.min() <= 1
    assert per_stream.min() >= 1
    assert input_BN.min() >= 0
    assert input_BN.max() < length
    # Only the first batch resets, and only the last one is short.
    assert [b.first for b in batches] == [True] + [False] * (len(batches) - 1)
    widths = [b.input_BT.shape[1] for b in batches]
    assert widths[:-1] == [segment] * (len(batches) - 1)
    assert 1 <= widths[-1] <= segment
    assert score_BN[:, -1].any()


@pytest.mark.parametrize("length", [0, 1])
def test_a_text_without_targets_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"at least 2 tokens, but the text has {length};"):
        EvaluationStreams(np.zeros(length, dtype=np.uint16), streams=4, segment=8)
