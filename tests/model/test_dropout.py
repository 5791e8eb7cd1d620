"""Dropout on a CPU: its rate, its mean, its gradient, and where its random numbers come from."""

from typing import Any

import numpy as np
import pytest
import torch

from model.ops import add_dropped, drop, keep
from tests.model.tiny import keep_mask, normal


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_mask_drops_as_many_as_asked_and_keeps_the_mean(rate: float) -> None:
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(400, 501), rate)
    kept = mask != 0
    deviation = (rate * (1 - rate) / mask.numel()) ** 0.5
    assert abs(kept.double().mean().item() - (1 - rate)) < 4 * deviation
    share = 1 - round(rate * 65536) / 65536
    assert mask[kept].unique().tolist() == pytest.approx([1 / share], rel=1e-7)


def test_neighbours_streams_and_calls_are_independent() -> None:
    torch.manual_seed(0)
    one, two = (keep_mask(torch.empty(300, 300), 0.5) - 1 for _ in range(2))
    for a, b in ((one, two), (one[1:], one[:-1]), (one[:, 1:], one[:, :-1]), (one, one.T)):
        assert abs((a * b).mean().item()) < 4 / 300 * 1.5


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_size_and_dtype(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    mask, factor = keep(torch.empty(shape, dtype=dtype), 0.25)
    assert (mask.shape, mask.dtype, factor) == (shape, dtype, 4 / 3)
    assert set(mask.flatten().tolist()) <= {0.0, 1.0}


class EveryNumber:
    """In the place of the generator: each number of 16 bits once, in an order of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def random_raw(self, count: int) -> Any:
        bits = np.random.default_rng(0).permutation(2**16).astype(np.uint16)
        return bits.view(np.uint64)[:count]


@pytest.fixture
def _every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.ops.np.random.SFC64", EveryNumber)


@pytest.mark.usefixtures("_every_number")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("rate", "dropped"),
    [(0.1, 6554), (0.5, 2**15), (0.25, 2**14), (1e-9, 1), (2**-17, 1), (1 - 1e-9, 65535)],
)
def test_of_all_numbers_as_many_are_dropped_and_the_mean_is_one(
    rate: float, dropped: int, dtype: torch.dtype
) -> None:
    mask, factor = keep(torch.empty(2**16, dtype=dtype), rate)
    assert (mask == 0).sum().item() == dropped
    assert mask.double().mean().item() * factor == 1.0


@pytest.mark.usefixtures("_every_number")
@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_the_mean_is_kept_in_bfloat16(rate: float) -> None:
    """1 / 0.9 rounds to 0.9984 of it; over the 128 mantissas products round less to one side."""
    x = (1 + torch.arange(2**16).double() % 128 / 128).bfloat16().requires_grad_()
    nothing, mask = torch.zeros_like(x), keep_mask(x, rate)
    wanted = (mask * x.double()).mean()
    for found in (drop(x, rate, True), add_dropped(nothing, x, rate, True)):
        (grad,) = torch.autograd.grad(found, [x], x.detach())
        for low in (found, grad):
            torch.testing.assert_close(low.double().mean(), wanted, rtol=8e-4, atol=0)


def test_a_hundred_calls_give_a_hundred_masks() -> None:
    torch.manual_seed(0)
    masks = {tuple(keep(torch.empty(64), 0.5)[0].tolist()) for _ in range(100)}
    assert len(masks) == 100


def test_a_seed_has_all_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    class Recorded(EveryNumber):
        def __init__(self, seed: int) -> None:
            seeds.append(seed)

    monkeypatch.setattr("model.ops.np.random.SFC64", Recorded)
    for _ in range(60):
        keep(torch.empty(4), 0.5)
    assert max(seeds) > 2**62
    assert np.bitwise_or.reduce(seeds) == 2**63 - 1


def test_torchs_seed_decides() -> None:
    def masks() -> list[torch.Tensor]:
        torch.manual_seed(5)
        return [keep_mask(torch.empty(100), 0.5) for _ in range(2)]

    first, again = masks(), masks()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(*first)


def test_without_training_or_rate_nothing_is_drawn() -> None:
    before, x = torch.get_rng_state(), normal(4, 4)
    assert drop(x, 0.5, False) is x
    assert drop(x, 0.0, True) is x
    assert torch.equal(add_dropped(x, x, 0.5, False), x + x)
    assert torch.equal(torch.get_rng_state(), before)


def test_value_and_gradient_are_those_of_the_mask() -> None:
    x, weight = normal(9, 11).requires_grad_(), normal(9, 11, seed=3)
    torch.manual_seed(7)
    found = drop(x, 0.3, True)
    torch.manual_seed(7)
    wanted = x * keep_mask(x, 0.3)
    torch.testing.assert_close(found, wanted, rtol=1e-15, atol=0)
    gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-15, atol=0)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("weight", [None, 0.7, 1.0, 0.0])
def test_what_is_added_is_dropped_and_weighted(weight: float | None, rate: float) -> None:
    x, delta = (normal(9, 11, seed=seed).requires_grad_() for seed in (1, 2))
    given = [x, delta]
    if weight is not None:
        given.append(torch.tensor(weight, dtype=torch.float64, requires_grad=True))
    torch.manual_seed(7)
    found = add_dropped(x, delta, rate, True, *given[2:])
    torch.manual_seed(7)
    mask = keep_mask(x, rate) if rate else torch.ones(9, 11)
    wanted = x + (1.0 if weight is None else given[2]) * (mask * delta)
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-14)
    out = normal(9, 11, seed=3)
    gradients = [torch.autograd.grad((y * out).sum(), given) for y in (found, wanted)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


def test_bfloat16_is_added_to_float32_with_the_exact_mean() -> None:
    torch.manual_seed(0)
    x, delta = torch.zeros(300, 300), torch.ones(300, 300, dtype=torch.bfloat16)
    found = add_dropped(x, delta, 0.1, True)
    assert found.dtype == torch.float32
    assert found.max().item() == pytest.approx(65536 / (65536 - 6554), rel=1e-6)
