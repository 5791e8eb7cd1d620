"""Chunked recurrences against the same token by token, in float64.

B batch   H heads   T length   K width of queries and keys   V width of values
"""

import pytest
import torch
from torch import Tensor

from model.blocks.linear_attention import decayed, gated_delta

B, H, K, V = 2, 3, 5, 4


def inputs(length: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "q_BHTK": normal(B, H, length, K),
        "k_BHTK": torch.nn.functional.normalize(normal(B, H, length, K), dim=-1),
        "value_BHTV": normal(B, H, length, V),
        "beta_BHT": torch.sigmoid(normal(B, H, length)),
        "log_decay_BHT": -torch.nn.functional.softplus(2 * normal(B, H, length) - 3),
        "state_BHKV": normal(B, H, K, V),
    }


def token_by_token(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    value_BHTV: Tensor,
    log_decay_BHT: Tensor,
    state_BHKV: Tensor,
    beta_BHT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    outs = []
    for t in range(q_BHTK.shape[2]):
        k_BHK1, value_BH1V = k_BHTK[:, :, t, :, None], value_BHTV[:, :, t, None]
        decay = log_decay_BHT[:, :, t, None, None].exp()
        if beta_BHT is None:
            state_BHKV = decay * state_BHKV + k_BHK1 * value_BH1V
        else:
            beta = beta_BHT[:, :, t, None, None]
            forgotten = k_BHK1 @ (k_BHK1.mT @ state_BHKV)
            state_BHKV = decay * (state_BHKV - beta * forgotten) + beta * k_BHK1 * value_BH1V
        outs.append((q_BHTK[:, :, t, None] @ state_BHKV)[:, :, 0])
    return torch.stack(outs, dim=2), state_BHKV


@pytest.mark.parametrize("length", [1, 5, 64, 65, 150])
@pytest.mark.parametrize("chunked", [decayed, gated_delta])
def test_chunks_give_what_the_recurrence_gives(chunked: object, length: int) -> None:
    given = inputs(length)
    if chunked is decayed:
        given.pop("beta_BHT")
    for tensor in given.values():
        tensor.requires_grad_()
    gradients = []
    for compute in (chunked, token_by_token):
        assert callable(compute)
        out, state = compute(**given)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        loss = (out * weights).sum() + state.square().sum()
        gradients.append([out, state, *torch.autograd.grad(loss, [*given.values()])])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("chunked", [decayed, gated_delta])
def test_a_decay_to_almost_nothing_is_no_overflow(chunked: object) -> None:
    given = {name: tensor.float() for name, tensor in inputs(130).items()}
    given["log_decay_BHT"] = torch.full((B, H, 130), -20.0, requires_grad=True)
    if chunked is decayed:
        given.pop("beta_BHT")
    assert callable(chunked)
    out, state = chunked(**given)
    (gradient,) = torch.autograd.grad(out.sum() + state.sum(), [given["log_decay_BHT"]])
    assert out.isfinite().all()
    assert gradient.isfinite().all()
