"""Training batches: contiguous streams, exact targets, only the remainder dropped."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data import ContextBatches

sizes = given(extra=st.integers(1, 60), batch=st.integers(1, 6), segment=st.integers(1, 9))
properties = settings(max_examples=200, deadline=None, derandomize=True)


def stream(extra: int, batch: int) -> np.ndarray:
    """Tokens whose value is their position, at least one input for every stream."""
    return np.arange(batch + extra, dtype=np.uint16)


@sizes
@properties
def test_rows_of_consecutive_batches_rejoin_to_the_stream(
    extra: int, batch: int, segment: int
) -> None:
    tokens = stream(extra, batch)
    batches = ContextBatches(tokens, batch=batch, segment=segment)
    epoch = [batches.batch(i) for i in range(batches.per_epoch)]
    input_BN = torch.cat([b.input_BT for b in epoch], dim=1)
    target_BN = torch.cat([b.target_BT for b in epoch], dim=1)
    row = (len(tokens) - 1) // batch
    assert input_BN.shape == target_BN.shape == (batch, row)
    for b in range(batch):
        assert input_BN[b].tolist() == list(range(b * row, (b + 1) * row))
    assert torch.equal(target_BN, input_BN + 1)


@sizes
@properties
def test_only_the_remainder_is_dropped(extra: int, batch: int, segment: int) -> None:
    tokens = stream(extra, batch)
    batches = ContextBatches(tokens, batch=batch, segment=segment)
    target = [t for i in range(batches.per_epoch) for t in batches.batch(i).target_BT.flatten()]
    seen = sorted(int(t) for t in target)
    assert 0 <= batches.dropped < batch
    assert seen == list(range(1, len(tokens) - batches.dropped))


@sizes
@properties
def test_lengths_first_flags_and_the_wrap(extra: int, batch: int, segment: int) -> None:
    batches = ContextBatches(stream(extra, batch), batch=batch, segment=segment)
    widths = set()
    for index in range(3 * batches.per_epoch):
        b, place = batches.batch(index), index % batches.per_epoch
        assert b.first == (place == 0)
        assert torch.equal(b.input_BT, batches.batch(place).input_BT)
        assert b.input_BT.shape[0] == batch
        widths.add(b.input_BT.shape[1])
    assert max(widths) <= segment
    assert max(widths) - min(widths) <= 1
    row = (len(stream(extra, batch)) - 1) // batch
    assert batches.per_epoch == -(-row // segment)


@sizes
@properties
def test_random_offsets_turn_the_text_in_every_epoch(extra: int, batch: int, segment: int) -> None:
    tokens = stream(extra, batch)
    batches = ContextBatches(tokens, batch=batch, segment=segment, offset_seed=3)
    plain = ContextBatches(tokens, batch=batch, segment=segment)
    assert (batches.per_epoch, batches.dropped) == (plain.per_epoch, plain.dropped)
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


def test_a_batch_is_a_pure_function_of_its_index() -> None:
    batches = ContextBatches(stream(50, 3), batch=3, segment=4)
    late = batches.batch(2).input_BT
    late += 1
    assert torch.equal(batches.batch(2).input_BT, late - 1)
    assert batches.batch(2).input_BT.dtype == batches.batch(2).target_BT.dtype == torch.int64


def test_memory_mapped_tokens_give_the_same_batches(tmp_path: object) -> None:
    tokens = stream(40, 4)
    tokens.tofile(f"{tmp_path}/tokens.bin")
    mapped = np.memmap(f"{tmp_path}/tokens.bin", dtype=np.uint16, mode="r")
    one, other = (ContextBatches(t, batch=4, segment=3) for t in (tokens, mapped))
    for i in range(one.per_epoch):
        assert torch.equal(one.batch(i).input_BT, other.batch(i).input_BT)
        assert torch.equal(one.batch(i).target_BT, other.batch(i).target_BT)


@pytest.mark.parametrize("length", [0, 1, 4])
def test_too_short_a_text_names_both_numbers(length: int) -> None:
    with pytest.raises(ValueError, match=f"4 streams need at least 5 .* the text has {length};"):
        ContextBatches(np.zeros(length, dtype=np.uint16), batch=4, segment=2)
    ContextBatches(np.zeros(5, dtype=np.uint16), batch=4, segment=2)
