"""An evaluation that keeps keys and values gives what one that keeps inputs gives."""

import pytest
import torch
from torch import Tensor

from model import LanguageModel, Mix
from tests.model.tiny import candidate, language_model, tokens

ATTENTION = {
    "all_keys": {"memory": 6},
    "window": {"memory": 6, "window": 4},
    "window_of_one": {"memory": 6, "window": 1},
    "clamp": {"memory": 6, "clamp": 3},
    "no_memory": {"memory": 0},
}


def read(model: LanguageModel, lengths: list[int], cached: bool, mix: Mix | None = None) -> Tensor:
    """The hidden states of 19 tokens in segments; the second stream starts anew after two."""
    ids_BT, out = tokens(2, 19), []
    state = model.initial_state(2, cached=cached)
    for number, ids in enumerate(ids_BT.split(lengths, dim=1)):
        if number == 2:
            state = state.reset(torch.tensor([False, True]))
        h_BTD, state, _ = model(ids, state, mix)
        out.append(h_BTD)
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("lengths", [[1] * 19, [3, 3, 3, 3, 3, 3, 1], [7, 7, 5], [19]], ids=len)
@pytest.mark.parametrize("options", ATTENTION.values(), ids=ATTENTION)
def test_keys_and_values_stand_for_the_inputs(options: dict[str, int], lengths: list[int]) -> None:
    attention = candidate("attention", **options)
    model = language_model([[attention], [candidate("dense")], [attention]])
    found, wanted = (read(model, lengths, cached) for cached in (True, False))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_a_supernet_keeps_those_of_each_candidate() -> None:
    near, far = (candidate("attention", label=f"reach_{m}", memory=m) for m in (2, 6))
    model = language_model([[near, far, candidate("dense")]] * 3)
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    mixes: list[Mix] = [
        [list(enumerate(weights.unbind()))] * 3,
        [[(1, None)], [(2, None)], [(0, None)]],
    ]
    for mix in mixes:
        found, wanted = (read(model, [4, 4, 4, 7], cached, mix) for cached in (True, False))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_nothing_is_kept_while_weights_may_move() -> None:
    model = language_model([[candidate("attention")]]).train()
    with pytest.raises(AssertionError, match="stand still"):
        model(tokens(2, 3), model.initial_state(2, cached=True))


def test_distances_are_projected_once() -> None:
    model = language_model([[candidate("attention")], [candidate("attention")]])
    calls = []
    for slot in model.slots:
        slot.blocks["attention"].position.register_forward_hook(lambda *_: calls.append(1))
    read(model, [5, 5, 5, 4], cached=True)
    assert len(calls) == 2 * 2  # two slots, two lengths
