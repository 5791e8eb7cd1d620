"""Every kernel of attention against the formula in a loop and the explicit products; which serves.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from model.attention_kernels import (
    KERNELS,
    AttentionInputs,
    fused,
    position_scores,
    select_kernel,
    with_bias,
)
from model.ops import drop
from model.state import Segment
from tests.model.test_attention import CASES, block, one_by_one
from tests.model.tiny import D_MODEL, candidate, language_model, normal, tokens

# Streams of which some rows of memory are not valid yet, and streams whose memory is full.
AGES = {"young": [0, 1, 50], "full": [50, 60, 70]}
every_case = pytest.mark.parametrize("case", CASES)
every_age = pytest.mark.parametrize("age", AGES)


class Reading:
    """A block, what it reads, and the formula's output."""

    def __init__(self, case: str, age: str) -> None:
        self.segment, self.memory, window, clamp = CASES[case]
        self.full = age == "full"
        d_head = 4 if self.full else 3
        self.block = block(window=window, memory=self.memory, d_head=d_head, clamp=clamp)
        self.c_BSD = normal(3, self.memory + self.segment, D_MODEL).requires_grad_()
        self.seen_B = torch.tensor(AGES[age])
        valid_BM = torch.arange(self.memory, 0, -1) <= self.seen_B[:, None]
        self.wanted = one_by_one(self.block, self.c_BSD, valid_BM)

    def output(self, kernel: str | None) -> Tensor:
        segment = Segment(self.seen_B, self.segment, full=self.full, kernel=kernel)
        delta_BTD: Tensor = self.block(self.c_BSD, segment, None)[0]
        return delta_BTD

    def gradients(self, out: Tensor) -> list[Tensor]:
        weight = normal(*out.shape, seed=5)
        inputs = [self.c_BSD, *self.block.parameters()]
        return list(torch.autograd.grad((out * weight).sum(), inputs))


@every_age
@every_case
def test_every_kernel_gives_the_formulas_value_and_gradients(case: str, age: str) -> None:
    reading = Reading(case, age)
    wanted = reading.gradients(reading.wanted)
    for kernel in KERNELS:
        found = reading.output(kernel)
        torch.testing.assert_close(found, reading.wanted, rtol=0, atol=1e-12)
        torch.testing.assert_close(reading.gradients(found), wanted, rtol=0, atol=1e-11)


def test_where_fused_cannot_serve_with_bias_does(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert select_kernel(gpu, 0.0, "fused", True) == fused
    assert select_kernel(gpu, 0.1, "fused", True) == with_bias
    assert select_kernel(cpu, 0.0, "fused", False) == with_bias
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    assert select_kernel(cpu, 0.0, "fused", True) == with_bias


def parts_of(segment: int, memory: int, seen: list[int]) -> AttentionInputs:
    batch, heads, width, keys = len(seen), 2, 5, memory + segment
    mask_BTS = Segment(torch.tensor(seen), segment).mask(memory, None, torch.float64)
    shapes = [(batch, segment, heads, width), *[(batch, keys, heads, width)] * 2]
    shapes += [(keys, heads, width), (heads, width), (heads, width)]
    tensors = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    return AttentionInputs(*(tensor.requires_grad_() for tensor in tensors), mask_BTS[:, None])


def explicit(inputs: AttentionInputs, rate: float) -> Tensor:
    """Product by product, for torch's own gradients: what the other ways are compared with."""
    q_BTHK, k_BSHK, value_BSHK, r_SHK, u_HK, v_HK, added_BHTS, _ = inputs
    score_BHTS = (q_BTHK + u_HK).transpose(1, 2) @ k_BSHK.permute(0, 2, 3, 1)
    score_BHTS = score_BHTS + position_scores(q_BTHK + v_HK, r_SHK) + added_BHTS
    weight_BHTS = drop(score_BHTS.softmax(-1), rate, rate > 0)
    return (weight_BHTS @ value_BSHK.transpose(1, 2)).transpose(1, 2)


def value_and_gradients(out: Tensor, parts: AttentionInputs) -> list[Tensor]:
    weight = normal(*out.shape, seed=11)
    return [out, *torch.autograd.grad((out * weight).sum(), parts[:6])]


def test_gradients_with_dropped_weights_are_finite_differences() -> None:
    parts = parts_of(3, 2, [9, 1])

    def out(*tensors: Tensor) -> Tensor:
        torch.manual_seed(3)
        return fused(AttentionInputs(*tensors, parts.added_BHTS), 0.4)

    assert torch.autograd.gradcheck(out, tuple(parts[:6]), atol=1e-7)
    torch.manual_seed(4)
    other = fused(parts, 0.4)
    assert not torch.equal(out(*parts[:6]), other)


@pytest.mark.parametrize("threads", [2, 3, 4])
@pytest.mark.parametrize(
    ("batch", "heads", "segment", "memory"), [(1, 3, 128, 128), (5, 1, 64, 64), (1, 1, 192, 0)]
)
def test_several_threads_give_the_explicit_gradients(
    threads: int, batch: int, heads: int, segment: int, memory: int
) -> None:
    """A copy is cut over threads wherever its count of numbers says, inside a matrix as well."""
    before, keys = torch.get_num_threads(), memory + segment
    mask_BTS = Segment(torch.full((batch,), keys), segment).mask(memory, None, torch.float32)
    shapes = [(batch, segment, heads, 8), *[(batch, keys, heads, 8)] * 2]
    shapes += [(keys, heads, 8), (heads, 8), (heads, 8)]
    tensors = [0.3 * normal(*shape, seed=seed).float() for seed, shape in enumerate(shapes)]
    given = [tensor.requires_grad_() for tensor in tensors]
    parts = AttentionInputs(*given, mask_BTS[:, None])
    torch.set_num_threads(threads)
    try:
        for _ in range(3):
            found = value_and_gradients(fused(parts, 0.0).double(), parts)
            wanted = value_and_gradients(explicit(parts, 0.0).double(), parts)
            for a, b in zip(found, wanted, strict=True):
                scale = max(1.0, float(b.detach().abs().max()))
                torch.testing.assert_close(a, b, rtol=0, atol=2e-5 * scale)
    finally:
        torch.set_num_threads(before)


# --- keys and values that an evaluation keeps ----------------------------------------------------


def test_few_tokens_copy_what_is_kept() -> None:
    """One in eight of 64 rows: that they copied them at each token would change no number."""
    model = language_model([[candidate("attention", memory=64)]])
    state, places = model.initial_state(2, cached=True), list[int]()
    for ids in tokens(2, 256).split(1, dim=1):
        _, state, _ = model(ids, state)
        ((kept,),) = state.blocks
        assert kept is not None
        places.append(kept.untyped_storage().data_ptr())
    copies = sum(one != other for one, other in pairwise(places[64:]))
    assert 0 < copies <= (256 - 64) // 8
