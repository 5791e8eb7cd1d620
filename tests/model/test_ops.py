"""Dropout, products and dense layers on a CPU against torch's own operations and float64."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from model.ops import add_dropped, drop, keep, project, relu_layers
from tests.model.tiny import keep_mask, normal


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
    torch.testing.assert_close(*gradients, rtol=1e-13, atol=1e-14)


def inputs(case: str) -> Tensor:
    x_BTD = normal(3, 8, 12)
    return {
        "plain": x_BTD,
        "rows": x_BTD[0],
        "tail": x_BTD[:, 3:],
        "transposed": x_BTD.transpose(0, 1),
        "expanded": x_BTD[:, :1].expand(3, 5, 12),
        "empty": x_BTD[:, :0],
    }[case]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", ["plain", "rows", "tail", "transposed", "expanded", "empty"])
def test_value_and_gradients_are_those_of_the_product(case: str, bias: bool) -> None:
    x, weight = inputs(case), normal(7, 12, seed=4)
    b = normal(7, seed=5) if bias else None
    given = [tensor.requires_grad_() for tensor in (x.detach(), weight, b) if tensor is not None]
    low = [tensor.detach().float().requires_grad_() for tensor in given]
    wanted = given[0] @ given[1].T + (given[2] if bias else 0)
    found = project(low[0], low[1], low[2] if bias else None)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-4)
    out = normal(*wanted.shape, seed=6)
    exact = torch.autograd.grad((wanted * out).sum(), given)
    close = torch.autograd.grad((found * out.float()).sum(), low)
    for a, e in zip(close, exact, strict=True):
        torch.testing.assert_close(a.double(), e, rtol=0, atol=1e-4)


SHAPES = [(3, 8, 12), (20, 12), (20,), (12, 20), (12,)]


def given(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    tensors = [normal(*shape, seed=seed) for seed, shape in enumerate(SHAPES)]
    return [tensor.to(dtype).requires_grad_() for tensor in tensors]


def by_torch(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, rate: float) -> Tensor:
    h = (x @ w1.T + b1).relu()
    return (h * keep_mask(h, rate) if rate else h) @ w2.T + b2


def value_and_gradients(out: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    weight = normal(*out.shape, seed=9).to(out.dtype)
    return [out, *torch.autograd.grad((out * weight).sum(), tensors)]


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-3)])
def test_value_and_gradients_are_torchs(rate: float, dtype: torch.dtype, bound: float) -> None:
    tensors, wide = given(dtype), given()
    torch.manual_seed(1)
    found = value_and_gradients(relu_layers(*tensors, rate, True), tensors)
    torch.manual_seed(1)
    wanted = value_and_gradients(by_torch(*wide, rate), wide)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=bound)


def test_gradients_are_finite_differences() -> None:
    def out(*tensors: Tensor) -> Tensor:
        torch.manual_seed(3)
        return relu_layers(*tensors, 0.4, True)

    assert torch.autograd.gradcheck(out, tuple(given()), atol=1e-7)


def test_under_autocast_products_are_bfloat16_and_gradients_float32() -> None:
    tensors, wide = given(torch.float32), given()
    for inner_F in (tensors[2], wide[2]):
        # Far from 0, where rounding decides whether a gradient passes.
        inner_F.data = 20 * torch.sign(inner_F.data)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        out = relu_layers(*tensors, 0.1, True)
    assert out.dtype == torch.bfloat16
    found = value_and_gradients(out, tensors)
    torch.manual_seed(1)
    wanted = value_and_gradients(by_torch(*wide, 0.1), wide)
    for a, b in zip(found[1:], wanted[1:], strict=True):
        assert a.dtype == torch.float32
        assert (a.double() - b).norm() < 0.02 * b.norm()


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_is_not_a_number_stays_so(dtype: torch.dtype, rate: float) -> None:
    tensors = given(dtype)
    tensors[0].data[1, 2, 3] = float("nan")
    out = relu_layers(*tensors, rate, True)
    assert out[1, 2].isnan().all()
    assert not out[0].isnan().any()
