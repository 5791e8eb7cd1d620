"""Every kernel of attention against the formula in a loop, and which one serves where.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

import pytest
import torch
from torch import Tensor

from model.attention_kernels import (
    FASTEST,
    KERNELS,
    AttentionInputs,
    fused,
    select_kernel,
    with_bias,
)
from model.state import Segment
from tests.model.test_attention import CASES, block, one_by_one
from tests.model.tiny import D_MODEL, language_model, normal, tokens
from tests.model.tiny import candidate as tiny_candidate

# Streams of which some rows of memory are not valid yet, and streams whose memory is full.
AGES = {"young": [0, 1, 50], "full": [50, 60, 70]}
every_case = pytest.mark.parametrize("case", CASES)
every_age = pytest.mark.parametrize("age", AGES)


class Reading:
    """A block, what it reads, and the formula's output."""

    def __init__(self, case: str, age: str) -> None:
        self.segment, self.memory, window, clamp = CASES[case]
        self.full = age == "full"
        self.block = block(window=window, memory=self.memory, d_head=3, clamp=clamp)
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
        for a, b in zip(reading.gradients(found), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_the_device_decides_where_no_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [select_kernel(cpu, rate, None) for rate in (0.0, 0.1)] == [fused, fused]
    assert select_kernel(gpu, 0.0, None) == with_bias
    assert select_kernel(cpu, 0.1, "with_bias") == with_bias
    monkeypatch.delitem(FASTEST, "cpu")
    assert select_kernel(cpu, 0.0, None) == with_bias


def test_where_fused_cannot_serve_with_bias_does(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert select_kernel(gpu, 0.0, "fused") == fused
    assert select_kernel(gpu, 0.1, "fused") == with_bias
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    assert select_kernel(cpu, 0.0, "fused") == with_bias


def test_a_block_takes_the_kernel_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for name in KERNELS:

        def run(inputs: AttentionInputs, rate: float, name: str = name) -> Tensor:
            taken.append(name)
            return torch.zeros_like(inputs.q_BTHK)

        monkeypatch.setitem(KERNELS, name, run)
    for asked in (None, "fused", "with_bias"):
        Reading("window", "full").output(asked)
    assert taken == ["fused", "fused", "with_bias"]


@pytest.mark.parametrize("kernel", KERNELS)
def test_in_bfloat16_values_and_gradients_stay_close(kernel: str) -> None:
    wide, low = Reading("long_memory", "full"), Reading("long_memory", "full")
    for reading in (wide, low):
        for parameter in reading.block.parameters():
            # Scores of the size that training has: an error of one of 10 would be 0.03.
            parameter.data.mul_(0.5)
    wanted = wide.output("fused")
    low.block.bfloat16()
    low.c_BSD = low.c_BSD.detach().bfloat16().requires_grad_()
    found = low.output(kernel)
    assert found.dtype == torch.bfloat16
    assert (found.double() - wanted).norm() < 0.03 * wanted.norm()
    for a, b in zip(low.gradients(found), wide.gradients(wanted), strict=True):
        assert (a.double() - b).norm() < 0.04 * b.norm()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_model_reads_on_by_any_kernel(kernel: str) -> None:
    """Memories fill up over the segments: the first ones have rows that are not valid."""
    slots = [[tiny_candidate("attention", memory=4)], [tiny_candidate("attention", memory=3)]]
    model, ids_BT = language_model(slots), tokens(2, 12)
    states = [model.initial_state(2), model.initial_state(2)]
    for start in range(0, 12, 3):
        ids = ids_BT[:, start : start + 3]
        wanted, states[0], _ = model(ids, states[0])
        found, states[1], _ = model(ids, states[1], attention=kernel)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert states[0].least_seen == 12
