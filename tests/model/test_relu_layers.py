"""The two layers of a dense block against torch's own operations and float64."""

import pytest
import torch
from torch import Tensor

from model.ops import relu_layers
from tests.model.tiny import keep_mask, normal

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


@pytest.mark.parametrize("asked", range(5))
def test_one_gradient_alone_is_the_same(asked: int) -> None:
    tensors = given()
    weight = normal(3, 8, 12, seed=9)
    everything = torch.autograd.grad((by_torch(*tensors, 0.0) * weight).sum(), tensors)
    alone = [tensor.detach() for tensor in tensors]
    alone[asked].requires_grad_()
    out = relu_layers(*alone, 0.0, True)
    (found,) = torch.autograd.grad((out * weight).sum(), [alone[asked]])
    torch.testing.assert_close(found, everything[asked], rtol=0, atol=1e-12)


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


def test_the_mean_of_what_dropout_keeps_is_exact_in_bfloat16() -> None:
    one = torch.ones(1, 1)
    x = torch.ones(40_000, 1)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        out = relu_layers(
            x, one, torch.zeros(1), torch.full((1, 1), 0.9), torch.zeros(1), 0.1, True
        )
    # 0.9 / 0.9 is a number of bfloat16; a mask of 1 / 0.9 is not, and would give 0.9984.
    assert out.float().max().item() == pytest.approx(1.0, rel=1e-4)


def test_without_training_nothing_is_dropped_nor_drawn() -> None:
    tensors, before = given(), torch.get_rng_state()
    torch.testing.assert_close(relu_layers(*tensors, 0.4, False), by_torch(*tensors, 0.0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("training", [True, False])
def test_a_compiler_is_given_torchs_own_dropout(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = given()
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    torch.manual_seed(1)
    found = relu_layers(*tensors, 0.4, training)
    torch.manual_seed(1)
    x, w1, b1, w2, b2 = tensors
    h = torch.dropout((x @ w1.T + b1).relu(), 0.4, training)
    torch.testing.assert_close(found, h @ w2.T + b2, rtol=0, atol=1e-12)


def test_the_factor_reaches_the_gradient_of_float32_weights_unrounded() -> None:
    """1 / 0.9 is no number of bfloat16: all gradients of W2 would be 0.16% too small."""
    tensors = given(torch.float32)
    tensors[1].data.zero_()
    tensors[2].data.fill_(1.0)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        out = relu_layers(*tensors, 0.1, True)
    (found,) = torch.autograd.grad(out.float().sum(), [tensors[3]])
    torch.manual_seed(1)
    wanted = keep_mask(torch.empty(3, 8, 20), 0.1).sum((0, 1))
    torch.testing.assert_close(found.double(), wanted.expand(12, 20), rtol=1e-6, atol=0)


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_is_not_a_number_stays_so(dtype: torch.dtype, rate: float) -> None:
    tensors = given(dtype)
    tensors[0].data[1, 2, 3] = float("nan")
    out = relu_layers(*tensors, rate, True)
    assert out[1, 2].isnan().all()
    assert not out[0].isnan().any()
