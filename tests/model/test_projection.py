"""A linear layer's product by either library against float64."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from model import ops
from model.ops import project
from tests.model.tiny import normal


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


def test_what_needs_no_gradient_gets_none() -> None:
    x, weight = normal(4, 12).float(), normal(7, 12).float().requires_grad_()
    (gradient,) = torch.autograd.grad(project(x, weight).sum(), [weight])
    torch.testing.assert_close(gradient, x.sum(0).expand(7, 12), rtol=0, atol=1e-4)
    x.requires_grad_()
    weight = weight.detach()
    (gradient,) = torch.autograd.grad(project(x, weight).sum(), [x])
    torch.testing.assert_close(gradient, weight.sum(0).expand(4, 12), rtol=0, atol=1e-4)


def test_autocast_decides_the_dtype() -> None:
    x, weight = normal(4, 12).float(), normal(7, 12).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert project(x, weight).dtype == torch.bfloat16
    assert project(x, weight).dtype == torch.float32


@pytest.mark.skipif(not ops._HAS_ONEDNN, reason="this torch was built without oneDNN")
def test_float32_takes_onednn_and_float64_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: Any) -> Tensor:
        raise AssertionError("torch's own product was taken")

    monkeypatch.setattr("model.ops.F.linear", refused)
    x, weight = normal(4, 12).float().requires_grad_(), normal(7, 12).float()
    torch.autograd.grad(project(x, weight).sum(), [x])
    with pytest.raises(AssertionError, match="own product"):
        project(x.double(), weight.double())


ON_A_SMALLER_PROCESSOR = """
import torch
from model.ops import relu_layers

torch.manual_seed(0)
x, w1, b1 = torch.randn(4, 8, 16, requires_grad=True), torch.randn(32, 16), torch.randn(32)
w2, b2 = torch.randn(16, 32), torch.randn(16)
wide = torch.relu(x @ w1.T + b1) @ w2.T + b2
with torch.autocast("cpu", torch.bfloat16):
    found = relu_layers(x, w1, b1, w2, b2, 0.0, True)
assert found.dtype == torch.bfloat16
assert (found - wide).norm() < 0.02 * wide.norm()
found_grad, grad = (torch.autograd.grad(out.float().sum(), [x])[0] for out in (found, wide))
assert (found_grad - grad).norm() < 0.1 * grad.norm()
"""


@pytest.mark.slow
def test_bfloat16_is_multiplied_where_onednn_does_not_know_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_A_SMALLER_PROCESSOR],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
