"""Streams cut into segments, reset and stored.

B batch   T segment length   M memory length   D d_model
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from model import Candidate, StreamState
from model.blocks.attention import AttentionBlock
from tests.model.contract import LENGTH, read
from tests.model.tiny import candidate, language_model, normal, tokens


def layers(**options: Any) -> list[list[Candidate]]:
    attention = candidate("attention", **options)
    return [[attention], [candidate("dense")], [candidate("identity")], [attention], [attention]]


@pytest.mark.parametrize("options", [{"window": 4, "memory": 2}, {"memory": LENGTH - 7}], ids=str)
def test_a_memory_one_row_too_short_is_seen(options: dict[str, int]) -> None:
    model, ids_BT = language_model(layers(**options)), tokens(2, LENGTH)
    difference = read(model, ids_BT, 3) - read(model, ids_BT, LENGTH)
    assert difference.abs().max() > 1e-3


def test_a_reset_forgets_even_what_is_not_a_number() -> None:
    state = StreamState(
        memory=(torch.full((2, 3, 4), float("nan")),),
        seen_B=torch.tensor([5, 5]),
        blocks=((torch.full((2, 4), float("nan")),),),
    ).reset(torch.tensor([True, False]))
    for tensor in (state.memory[0], state.blocks[0][0]):
        assert tensor is not None
        assert torch.equal(tensor[0], torch.zeros_like(tensor[0]))
        assert tensor[1].isnan().all()


def test_weights_learn_through_memory_rows() -> None:
    """Memory holds inputs: keys and values of its rows are computed from today's weights."""
    model = language_model([[candidate("attention", memory=4)]])
    _, state, _ = model(tokens(1, 4), model.initial_state(1))
    block = model.slots[0].blocks["attention"]
    assert isinstance(block, AttentionBlock)
    weight, target_BT = block.key_value.weight, tokens(1, 1, seed=5)

    def loss() -> Tensor:
        return model.nll(model(tokens(1, 1, seed=3), state)[0], target_BT).sum()

    direction = normal(*weight.shape)
    slope = (torch.autograd.grad(loss(), weight)[0] * direction).sum().item()
    sides = []
    for step in (1e-5, -2e-5):
        weight.data += step * direction
        sides.append(loss().item())
    assert slope == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-6)


def test_tensors_of_a_state_share_no_storage() -> None:
    """Where identity is drawn two slots remember one tensor, which safetensors would refuse."""
    model = language_model([[candidate("attention", memory=4), candidate("identity")]] * 2)
    _, state, _ = model(tokens(2, 4), model.initial_state(2), [[(1, None)]] * 2)
    tensors = state.tensors()
    assert torch.equal(tensors["memory.0"], tensors["memory.1"])
    assert len({tensor.data_ptr() for tensor in tensors.values()}) == len(tensors)
