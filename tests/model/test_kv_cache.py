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


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 19])
@pytest.mark.parametrize("at_once", [2, 3, 19])
@pytest.mark.parametrize("options", ATTENTION.values(), ids=ATTENTION)
def test_segments_read_at_once_are_those_read_in_turn(
    options: dict[str, int], at_once: int, length: int
) -> None:
    """Also where memories are not full yet, and where the last segment is shorter."""
    model = language_model([[candidate("attention", **options)], [candidate("dense")]] * 2)
    ids_BT = tokens(2, 19)
    found, state = [], model.initial_state(2, cached=True)
    for ids in ids_BT.split(length * at_once, dim=1):
        h_BTD, state, _ = model(ids, state, chunk=length)
        found.append(h_BTD)
    wanted, one = [], model.initial_state(2, cached=False)
    for ids in ids_BT.split(length, dim=1):
        h_BTD, one, _ = model(ids, one)
        wanted.append(h_BTD)
    torch.testing.assert_close(torch.cat(found, 1), torch.cat(wanted, 1), rtol=0, atol=1e-12)


def test_a_chunk_changes_what_is_seen() -> None:
    model = language_model([[candidate("attention", memory=2)]])
    ids_BT, state = tokens(2, 9), model.initial_state(2, cached=True)
    whole, chunked = (model(ids_BT, state, chunk=length)[0] for length in (None, 3))
    torch.testing.assert_close(chunked[:, :3], whole[:, :3], rtol=0, atol=1e-12)
    assert (chunked[:, 6:] - whole[:, 6:]).abs().min(dim=-1).values.max() > 1e-6


def test_a_chunk_needs_keys_that_are_kept() -> None:
    model = language_model([[candidate("attention", memory=2)]])
    with pytest.raises(AssertionError, match="read anew"):
        model(tokens(2, 4), model.initial_state(2), chunk=2)
