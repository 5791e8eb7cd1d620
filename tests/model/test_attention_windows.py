"""Attention of a long segment in blocks of its window, against the same without blocks."""

import pytest
import torch

from model.blocks import attention as attention_windows
from model.state import Segment
from tests.model.contract import slot_of
from tests.model.tiny import D_MODEL, candidate, normal

OPTIONS = [
    {"window": 4, "memory": 3},
    {"window": 4, "memory": 9},
    {"window": 1, "memory": 0},
    {"window": 5, "memory": 4, "clamp": 2},
    {"window": 3, "memory": 2, "n_kv_heads": 1},
]


def passed(options: dict[str, int], length: int, seen: int) -> list[torch.Tensor]:
    """What the slot gives, and the gradients of its input and weights."""
    slot = slot_of(candidate("attention", **options))
    rows = slot.block("attention").memory_rows
    memory = normal(2, rows, D_MODEL, seed=5) if rows else None
    x_BTD = normal(2, length, D_MODEL).requires_grad_()
    segment = Segment(torch.tensor([seen, 20]), length)
    out_BTD = slot(x_BTD, memory, segment, (None,), [(0, None)])[0]
    (out_BTD * normal(*out_BTD.shape, seed=6)).sum().backward()
    gradients = [parameter.grad for parameter in slot.parameters()]
    return [tensor for tensor in (out_BTD, x_BTD.grad, *gradients) if tensor is not None]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("length", [8, 9, 13])
@pytest.mark.parametrize("seen", [0, 2, 20])
def test_blocks_change_neither_values_nor_gradients(
    options: dict[str, int], length: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, keys = attention_windows.pairs_of(options["window"], options["window"] - 1, length)
    assert keys == 2 * options["window"] - 1
    cut = passed(options, length, seen)
    monkeypatch.setattr(attention_windows, "_blocks", lambda *_: 1)
    whole = passed(options, length, seen)
    assert len(cut) == len(whole) > 4
    for one, other in zip(cut, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
