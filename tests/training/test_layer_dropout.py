"""Layer dropout: which slots a step leaves out, and what the others are multiplied with.

B batch   T segment length   D d_model   L slots
"""

import numpy as np
import pytest
import torch

from model import LanguageModel, Mix
from model.slot import Terms
from model.state import Segment
from tests import tiny
from tests.training.test_step import weight_step
from training.step import LayerDropoutStep, uniform_numbers

LAYOUT = ("attention", "dense", "identity", "dense")


def step_of(rate: float = 0.4, seed: int = 0) -> LayerDropoutStep:
    return LayerDropoutStep(weight_step(lr=0.1, kind="sgd"), rate, seed)


def model_of(*layout: str, tie_slots: int | None = None) -> LanguageModel:
    return tiny.language_model(
        [list(tiny.candidates(kind)) for kind in layout], tie_slots=tie_slots
    )


def kept(mix: Mix) -> list[int]:
    return [slot for slot, terms in enumerate(mix) if terms]


def test_draws_are_a_function_of_seed_and_step_and_have_the_rate() -> None:
    model, step = model_of(*["dense"] * 40), step_of()
    draws = [tuple(kept(step.mix(model, at))) for at in range(60)]
    assert draws == [tuple(kept(step.mix(model, at))) for at in range(60)]
    assert len(set(draws)) == 60
    assert tuple(kept(step_of(seed=1).mix(model, 0))) != draws[0]
    assert sum(map(len, draws)) / (40 * 60) == pytest.approx(0.6, abs=0.03)
    # Another seed's step is not this seed's next one.
    assert not np.array_equal(uniform_numbers(0, 1, 4), uniform_numbers(1, 0, 4))


def test_layouts_of_one_network_leave_out_the_same_blocks() -> None:
    step = step_of()
    for at in range(20):
        mixes = [
            step.mix(model_of(*kinds), at) for kinds in (LAYOUT, (*LAYOUT[:2], *LAYOUT[:1:-1]))
        ]
        assert [bool(mixes[0][slot]) for slot in (0, 1, 3)] == [
            bool(mixes[1][slot]) for slot in (0, 1, 2)
        ]


def test_what_is_kept_is_divided_by_what_is_kept_on_average() -> None:
    """So the mean over the draws of what a slot adds is what an evaluation adds."""
    model, step = model_of("dense"), step_of(rate=0.25)
    x_BTD, slot = torch.randn(2, 4, 8, dtype=torch.float64), model.slots[0]
    state = model.initial_state(2)

    def delta(terms: Terms) -> torch.Tensor:
        return slot(x_BTD, None, Segment(state.seen_B, 4), (None,), terms)[0] - x_BTD

    whole = delta([(0, None)])
    mixes = [step.mix(model, at)[0] for at in range(40)]
    for terms in mixes:
        torch.testing.assert_close(delta(terms), whole / 0.75 if terms else 0.0 * whole)
    assert 0 < sum(not terms for terms in mixes) < 20


def test_a_slot_that_is_left_out_is_not_trained_and_remembers_its_inputs() -> None:
    step = step_of(rate=0.5)
    at = next(at for at in range(50) if kept(step.mix(model_of(*LAYOUT), at)) == [1, 2])
    state = tiny.state_of(model_of(*LAYOUT))
    state.step = at
    before = {name: t.clone() for name, t in state.model.state_dict().items()}
    step(state, tiny.batch())
    moved = {name[:7] for name, t in state.model.state_dict().items() if not t.equal(before[name])}
    assert "slots.1" in moved
    assert not {"slots.0", "slots.3"} & moved
    memory = state.streams["weights"].memory[0]
    assert memory is not None
    assert memory.abs().sum() > 0
