"""Relative attention against the formula, computed pair by pair.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

import math

import pytest
import torch
from torch import Tensor

from model.blocks import attention as attention_windows
from model.blocks.attention import AttentionBlock
from model.blocks.options import AttentionOptions
from model.ops import NO_DROPOUT
from model.state import Segment, sinusoid
from tests.model.contract import slot_of
from tests.model.tiny import D_MODEL, candidate, normal, randomise


def block(**options: int | None) -> AttentionBlock:
    made = candidate("attention", **options)
    assert isinstance(made, AttentionOptions)
    attention = AttentionBlock(made, D_MODEL, NO_DROPOUT)
    randomise(attention)
    return attention


def encoding(distance: int) -> Tensor:
    """R_n of Dai et al.: the sines and then the cosines of n * 10000^(-2m/D)."""
    angles = [distance * 10000 ** (-2 * m / D_MODEL) for m in range(D_MODEL // 2)]
    values = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    return torch.tensor(values, dtype=torch.float64)


def one_by_one(attention: AttentionBlock, c_BSD: Tensor, valid_BM: Tensor) -> Tensor:
    """The formula of the block's docstring in a loop over (i, j)."""
    heads, width, memory = attention.n_heads, attention.d_head, valid_BM.shape[1]
    segment = c_BSD.shape[1] - memory
    w_q, w_r = attention.query.weight, attention.position.weight
    w_k, w_v = attention.key_value.weight.chunk(2)
    rows = []
    for b in range(c_BSD.shape[0]):
        for i in range(segment):
            out = []
            for h in range(heads):
                part = slice(h * width, (h + 1) * width)
                q = w_q[part] @ c_BSD[b, memory + i]
                scores, values = [], []
                for j in range(memory + i + 1):
                    distance = memory + i - j
                    if attention.window is not None and distance >= attention.window:
                        continue
                    if j < memory and not valid_BM[b, j]:
                        continue
                    encoded = (
                        distance if attention.clamp is None else min(distance, attention.clamp)
                    )
                    k, r = w_k[part] @ c_BSD[b, j], w_r[part] @ encoding(encoded)
                    score = (q + attention.u_HK[h]) @ k + (q + attention.v_HK[h]) @ r
                    scores.append(score / math.sqrt(width))
                    values.append(w_v[part] @ c_BSD[b, j])
                out.append(torch.stack(scores).softmax(0) @ torch.stack(values))
            rows.append(attention.output.weight @ torch.cat(out))
    return torch.stack(rows).view(c_BSD.shape[0], segment, D_MODEL)


CASES = {  # segment, memory, window, clamp
    "no_memory": (5, 0, None, None),
    "short_memory": (5, 2, None, None),
    "long_memory": (3, 7, None, None),
    "one_token": (1, 4, None, None),
    "one_token_no_memory": (1, 0, None, None),
    "window": (5, 3, 4, None),
    "window_of_one": (4, 0, 1, None),
    "window_wider_than_all": (4, 3, 50, None),
    "clamp": (3, 7, None, 4),
    "clamp_of_zero": (4, 3, None, 0),
    "clamp_within_the_segment": (5, 2, None, 1),
    "clamp_within_a_window": (5, 4, 5, 2),
    "clamp_and_one_token": (1, 4, None, 2),
    "clamp_wider_than_all": (4, 3, None, 50),
}


def test_distances_stay_apart_in_half_precision() -> None:
    encoded_SD = sinusoid(2100, 64, dtype=torch.bfloat16)
    assert encoded_SD.dtype == torch.bfloat16
    exact_SD = sinusoid(2100, 64, dtype=torch.float64)
    assert (encoded_SD.double() - exact_SD).abs().max() < 0.005


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
