"""A slot's sum, its memory, its candidates' own states, and streams that are cut and stored.

B batch   T segment length   M memory length   D d_model
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from model import Candidate, Dropout, StreamState
from model.ops import NO_DROPOUT
from model.slot import Slot
from model.state import Segment
from tests.model.contract import LENGTH, read
from tests.model.tiny import D_MODEL, candidate, language_model, normal, randomise, tokens


def slot_of(*candidates: Any, dropout: Dropout = NO_DROPOUT) -> Slot:
    slot = Slot(candidates, D_MODEL, dropout)
    randomise(slot)
    return slot


THREE = [candidate("attention"), candidate("dense"), candidate("identity")]


def test_a_label_that_torch_has_for_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="the label 'float' is a name of torch's own"):
        Slot([candidate("dense", label="float")], D_MODEL, NO_DROPOUT)


def segment_of(x_BTD: Tensor) -> Segment:
    return Segment(torch.tensor([0, 5]), x_BTD.shape[1])


NO_STATES = (None, None, None)


def test_memory_is_as_long_as_the_greediest_candidate_reads() -> None:
    short = candidate("attention", label="short", memory=2)
    windowed = candidate("attention", label="windowed", window=4)
    slots = [
        [short, candidate("dense")],
        [short, windowed],
        [candidate("dense"), candidate("identity")],
        [candidate("attention", window=1)],
    ]
    memory = language_model(slots).initial_state(1).memory
    assert [0 if rows is None else rows.shape[1] for rows in memory] == [2, 3, 0, 0]


def test_what_adds_nothing_is_not_computed_and_draws_no_random_number() -> None:
    slot, x_BTD = slot_of(*THREE, dropout=Dropout(residual=0.5)).train(), normal(2, 4, D_MODEL)
    memory_BMD, before = normal(2, 6, D_MODEL, seed=4), torch.get_rng_state()
    out_BTD = slot(x_BTD, memory_BMD, segment_of(x_BTD), NO_STATES, [(2, None)])[0]
    assert out_BTD is x_BTD
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["gated_delta", "linear_attention"])
def test_a_state_that_was_lost_is_made_of_the_memory(kind: str) -> None:
    slot = slot_of(candidate("attention", memory=6), candidate(kind))
    memory, x_BTD = normal(3, 6, D_MODEL, seed=4), normal(3, 4, D_MODEL)
    seen_B, states = torch.tensor([0, 2, 9]), (None, None)
    out_BTD = slot(x_BTD, memory, Segment(seen_B, 4), states, [(1, None)])[0]
    for stream, seen in enumerate((0, 2, 6)):
        whole_1SD = torch.cat([memory[:, 6 - seen :], x_BTD], dim=1)[stream : stream + 1]
        start, alone = Segment(torch.tensor([0]), 4 + seen), slot_of(candidate(kind))
        alone.load_state_dict({k: v for k, v in slot.state_dict().items() if kind in k})
        wanted_1SD = alone(whole_1SD, None, start, (None,), [(0, None)])[0]
        torch.testing.assert_close(out_BTD[stream], wanted_1SD[0, seen:], rtol=0, atol=1e-12)


def test_a_state_that_was_lost_has_no_gradient() -> None:
    slot = slot_of(candidate("attention", memory=6), candidate("gated_delta"))
    memory, x_BTD = normal(2, 6, D_MODEL, seed=4).requires_grad_(), normal(2, 4, D_MODEL)
    out_BTD = slot(x_BTD, memory, segment_of(x_BTD), (None, None), [(1, None)])[0]
    (grad,) = torch.autograd.grad(out_BTD.sum(), [memory], allow_unused=True)
    assert grad is None


def test_an_auxiliary_loss_is_weighed_and_trains_the_block_and_not_its_weight() -> None:
    slot = slot_of(candidate("adaptive_span", span=7, span_loss=0.1))
    memory, x_BTD = normal(2, 6, D_MODEL, seed=4), normal(2, 6, D_MODEL)
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    whole = slot(x_BTD, memory, segment_of(x_BTD), (None,), [(0, None)])[3]
    out_BTD, _, _, aux = slot(x_BTD, memory, segment_of(x_BTD), (None,), [(0, weight)])
    torch.testing.assert_close(aux, 0.5 * whole)
    assert whole.item() != 0.0
    span_H = slot.blocks["adaptive_span"].span_H
    of_spans, of_weight = torch.autograd.grad(aux, [span_H, weight], allow_unused=True)
    assert of_weight is None
    assert of_spans.abs().max() > 0
    assert torch.autograd.grad(out_BTD.sum(), weight)[0] != 0.0


def layers(**options: Any) -> list[list[Candidate]]:
    attention = candidate("attention", **options)
    return [[attention], [candidate("dense")], [candidate("identity")], [attention], [attention]]


@pytest.mark.parametrize("options", [{"window": 4, "memory": 2}, {"memory": LENGTH - 7}], ids=str)
def test_a_memory_one_row_too_short_is_seen(options: dict[str, int]) -> None:
    model, ids_BT = language_model(layers(**options)), tokens(2, LENGTH)
    difference = read(model, ids_BT, 3) - read(model, ids_BT, LENGTH)
    assert difference.abs().max() > 1e-3


def test_a_reset_forgets_even_what_is_not_a_number() -> None:
    nan = torch.full((2, 3), float("nan"))
    state = StreamState(memory=(nan,), seen_B=torch.tensor([5, 5]), blocks=((nan,),)).reset()
    assert not any(tensor.any() for tensor in state.tensors().values())


def test_tensors_of_a_state_share_no_storage() -> None:
    """Where identity is drawn two slots remember one tensor, which safetensors would refuse."""
    model = language_model([[candidate("attention", memory=4), candidate("identity")]] * 2)
    _, state, _ = model(tokens(2, 4), model.initial_state(2), [[(1, None)]] * 2)
    tensors = state.tensors()
    assert torch.equal(tensors["memory.0"], tensors["memory.1"])
    assert len({tensor.data_ptr() for tensor in tensors.values()}) == len(tensors)
