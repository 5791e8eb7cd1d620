"""Attention against its formulas, computed pair by pair.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

import cmath
import math
from typing import Any

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


def block(**options: Any) -> AttentionBlock:
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


def turned(row_K: Tensor, place: int) -> Tensor:
    """Each pair of channels as a complex number times exp(i angle)."""
    half = len(row_K) // 2
    turn = [cmath.exp(1j * place * 10000 ** (-m / half)) for m in range(half)]
    pair = torch.complex(row_K[:half], row_K[half:]) * torch.tensor(turn, dtype=torch.complex128)
    return torch.cat([pair.real, pair.imag])


def normed(row_K: Tensor, weight_K: Tensor | None) -> Tensor:
    """Divided by the root of the mean square, where there are weights."""
    return row_K if weight_K is None else weight_K * row_K / (row_K.square().mean() + 1e-5).sqrt()


def raw_score(attention: AttentionBlock, h: int, q_K: Tensor, k_K: Tensor, i: int, j: int) -> Any:
    """Of the query at i with the key at j, in the head h."""
    distance = i - j if attention.clamp is None else min(i - j, attention.clamp)
    if attention.positions == "rope":
        # Turned by where they stand, or beyond the clamp as if they stood that far apart.
        places = (i, j) if distance == i - j else (distance, 0)
        return turned(q_K, places[0]) @ turned(k_K, places[1])
    if attention.positions == "none":
        return q_K @ k_K
    group = slice(h * attention.d_head, (h + 1) * attention.d_head)
    r_K = attention.position.weight[group] @ encoding(distance)
    return (q_K + attention.u_HK[h]) @ k_K + (q_K + attention.v_HK[h]) @ r_K


def one_by_one(attention: AttentionBlock, c_BSD: Tensor, valid_BM: Tensor) -> Tensor:
    """The formula of the block's docstring in a loop over (i, j)."""
    heads, width, memory = attention.n_heads, attention.d_head, valid_BM.shape[1]
    segment, per_group = c_BSD.shape[1] - memory, heads // attention.n_kv_heads
    w_q, (w_k, w_v) = attention.query.weight, attention.key_value.weight.chunk(2)
    rows = []
    for b in range(c_BSD.shape[0]):
        for i in range(segment):
            out = []
            for h in range(heads):
                part = slice(h * width, (h + 1) * width)
                read = slice(h // per_group * width, (h // per_group + 1) * width)
                q = normed(w_q[part] @ c_BSD[b, memory + i], attention.query_norm_K)
                scores, values = [], []
                for j in range(memory + i + 1):
                    distance = memory + i - j
                    if attention.window is not None and distance >= attention.window:
                        continue
                    if j < memory and not valid_BM[b, j]:
                        continue
                    k = normed(w_k[read] @ c_BSD[b, j], attention.key_norm_K)
                    score = raw_score(attention, h, q, k, memory + i, j)
                    scores.append(score / math.sqrt(width))
                    values.append(w_v[read] @ c_BSD[b, j])
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


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("positions", ["relative", "rope", "none"])
@pytest.mark.parametrize("case", CASES)
def test_every_way_of_positions_is_its_formula(case: str, positions: str, qk_norm: bool) -> None:
    """In training, and in an evaluation of streams that stand at places of their own."""
    segment, memory, window, clamp = CASES[case]
    made = block(
        window=window, memory=memory, d_head=4, clamp=None if positions == "none" else clamp,
        positions=positions, qk_norm=qk_norm, n_kv_heads=1 if positions != "relative" else None,
    )  # fmt: skip
    c_BSD, seen_B = normal(3, memory + segment, D_MODEL), torch.tensor([0, 1, 50])
    valid_BM = torch.arange(memory, 0, -1) <= seen_B[:, None]
    wanted = one_by_one(made, c_BSD, valid_BM)
    found = made(c_BSD, Segment(seen_B, segment), None)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    with torch.no_grad():
        state, first_B = None, seen_B - memory
        for part_BSD in (c_BSD[:, :memory], c_BSD[:, memory:]):
            if part_BSD.shape[1]:
                there = Segment(first_B, part_BSD.shape[1], cache={})
                found, state, _ = made(part_BSD, there, state)
                first_B = first_B + part_BSD.shape[1]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_a_long_stream_is_turned_as_exactly_as_a_short_one() -> None:
    """Distances count alone: a float32 of ten million would know no angle."""
    made = block(positions="rope", memory=6).float()
    c_BTD, found = normal(2, 6, D_MODEL).float(), []
    with torch.no_grad():
        for seen in (6, 10_000_000):
            state = made(c_BTD, Segment(torch.full((2,), seen - 6), 6, cache={}), None)[1]
            there = Segment(torch.full((2,), seen), 6, cache={})
            found.append(made(c_BTD.flip(1), there, state)[0])
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


def test_distances_stay_apart_in_half_precision() -> None:
    encoded_SD = sinusoid(2100, 64, dtype=torch.bfloat16)
    assert encoded_SD.dtype == torch.bfloat16
    exact_SD = sinusoid(2100, 64, dtype=torch.float64)
    assert (encoded_SD.double() - exact_SD).abs().max() < 0.005


def test_a_stream_goes_on_where_it_was_while_another_begins_anew() -> None:
    made = block(positions="rope", memory=6)
    c_BTD, outs = normal(2, 6, D_MODEL), []
    with torch.no_grad():
        first = made(c_BTD, Segment(torch.zeros(2), 6, cache={}), None)[1]
        for seen in ([6, 6], [0, 6]):
            state = first.clone()
            there = Segment(torch.tensor(seen), 6, cache={})
            outs.append(made(c_BTD.flip(1), there, state)[0])
    torch.testing.assert_close(outs[0][1], outs[1][1], rtol=0, atol=1e-12)


OPTIONS: list[dict[str, Any]] = [
    {"window": 4, "memory": 3},
    {"window": 4, "memory": 9},
    {"window": 1, "memory": 0},
    {"window": 5, "memory": 4, "clamp": 2},
    {"window": 3, "memory": 2, "n_kv_heads": 1},
    {"window": 4, "memory": 3, "positions": "rope", "clamp": 2, "qk_norm": True},
]


def passed(options: dict[str, Any], length: int, seen: int) -> list[torch.Tensor]:
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
    options: dict[str, Any], length: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, keys = attention_windows.pairs_of(options["window"], options["window"] - 1, length)
    assert keys == 2 * options["window"] - 1
    cut = passed(options, length, seen)
    monkeypatch.setattr(attention_windows, "_blocks", lambda *_: 1)
    whole = passed(options, length, seen)
    assert len(cut) == len(whole) > 4
    for one, other in zip(cut, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
