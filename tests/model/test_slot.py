"""A slot's sum, its memory and its candidates' own states."""

from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from model import BLOCKS, Dropout
from model.blocks.base import BlockKind, BlockOptions, Label
from model.ops import NO_DROPOUT
from model.slot import Slot
from model.state import Segment
from tests.model.tiny import D_MODEL, candidate, language_model, normal, randomise


class ShiftOptions(BlockOptions):
    """A kind with a state and an auxiliary loss."""

    kind: Literal["shift"] = "shift"
    label: Label = "shift"


class ShiftBlock(nn.Module):
    """Adds a multiple of the token before; its state is the last token."""

    memory_rows = 0
    adds_nothing = False

    def __init__(self, options: ShiftOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(d_model))

    def forward(self, c_BSD: Tensor, segment: Segment, state: Tensor | None) -> Any:
        state = torch.zeros_like(c_BSD[:, 0]) if state is None else state
        shifted_BTD = torch.cat([state[:, None], c_BSD[:, :-1]], dim=1)
        return self.factor * shifted_BTD, c_BSD[:, -1], self.factor.square().sum()

    def flops(self, batch: int, segment: int, memory: int) -> float:
        return 0.0


@pytest.fixture
def with_shift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BLOCKS, "shift", BlockKind("s", ShiftOptions, ShiftBlock))


def slot_of(*candidates: Any, dropout: Dropout = NO_DROPOUT) -> Slot:
    slot = Slot(candidates, D_MODEL, dropout)
    randomise(slot)
    return slot


THREE = [candidate("attention"), candidate("dense"), candidate("identity")]


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


def test_dropout_acts_on_the_delta_and_only_in_training() -> None:
    slot, x_BTD = slot_of(candidate("dense"), dropout=Dropout(residual=0.5)), normal(2, 50, D_MODEL)
    torch.manual_seed(0)
    trained = slot.train()(x_BTD, None, segment_of(x_BTD), (None,), [(0, None)])[0]
    kept = (trained == x_BTD).double().mean().item()
    assert 0.35 < kept < 0.65
    slot.eval()
    first, second = (
        slot(x_BTD, None, segment_of(x_BTD), (None,), [(0, None)])[0] for _ in range(2)
    )
    assert torch.equal(first, second)
    assert not (first == x_BTD).any()


def test_what_adds_nothing_is_not_computed_and_draws_no_random_number() -> None:
    slot, x_BTD = slot_of(*THREE, dropout=Dropout(residual=0.5)).train(), normal(2, 4, D_MODEL)
    memory_BMD, before = normal(2, 6, D_MODEL, seed=4), torch.get_rng_state()
    out_BTD = slot(x_BTD, memory_BMD, segment_of(x_BTD), NO_STATES, [(2, None)])[0]
    assert out_BTD is x_BTD
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("with_shift")
def test_a_candidates_own_state_and_auxiliary_loss_pass_through_the_slot() -> None:
    slot = slot_of(candidate("dense"), candidate("shift"))
    x_BTD = normal(2, 6, D_MODEL)
    whole = slot(x_BTD, None, segment_of(x_BTD), (None, None), [(1, None)])[0]
    first, _, states, _ = slot(
        x_BTD[:, :4], None, segment_of(x_BTD[:, :4]), (None, None), [(1, None)]
    )
    assert states[0] is None
    assert not states[1].requires_grad
    _, _, lost, no_aux = slot(x_BTD[:, 4:], None, segment_of(x_BTD[:, 4:]), states, [(0, None)])
    assert lost == (None, None)
    assert no_aux is None
    second = slot(x_BTD[:, 4:], None, segment_of(x_BTD[:, 4:]), states, [(1, None)])[0]
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=0, atol=1e-12)

    half = torch.tensor(0.5, dtype=torch.float64)
    full_aux = slot(x_BTD, None, segment_of(x_BTD), (None, None), [(1, None)])[3]
    half_aux = slot(x_BTD, None, segment_of(x_BTD), (None, None), [(0, half), (1, half)])[3]
    torch.testing.assert_close(half_aux, full_aux / 2)


@pytest.mark.usefixtures("with_shift")
def test_an_auxiliary_loss_trains_the_block_and_not_the_weight_that_weighs_it() -> None:
    slot, x_BTD = slot_of(candidate("shift")), normal(2, 6, D_MODEL)
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    out_BTD, _, _, aux = slot(x_BTD, None, segment_of(x_BTD), (None,), [(0, weight)])
    factor_D = slot.blocks["shift"].factor
    of_block_D, of_weight = torch.autograd.grad(aux, [factor_D, weight], allow_unused=True)
    assert of_weight is None
    torch.testing.assert_close(of_block_D, 0.5 * 2.0 * factor_D)
    assert torch.autograd.grad(out_BTD.sum(), weight)[0] != 0.0


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
