"""Slots that share their weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from model import (
    Architecture,
    LanguageModel,
    ModelConfig,
    SoftmaxConfig,
    build_model,
    load_model,
    save_model,
)
from tests.model.test_architecture import architecture
from tests.model.tiny import D_MODEL, VOCABULARY, candidate, randomise, tokens

LAYOUT = [[candidate(kind)] for kind in ("attention", "dense", "attention", "dense", "dense")]


def tied(period: int | None, slots: Any = LAYOUT) -> LanguageModel:
    model = LanguageModel(
        slots,
        d_model=D_MODEL,
        vocabulary_size=VOCABULARY,
        softmax=SoftmaxConfig(),
        tie_slots=period,
    )
    randomise(model)
    return model


def loss(model: LanguageModel) -> torch.Tensor:
    """Two segments, so that memories matter."""
    ids_BT, state = tokens(2, 8), model.initial_state(2)
    _, state, _ = model(ids_BT[:, :4], state)
    h_BTD, _, _ = model(ids_BT[:, 4:], state)
    return model.nll(h_BTD, ids_BT[:, :4]).sum()


@pytest.mark.parametrize("period", [1, 2, 3])
def test_a_tied_model_is_the_untied_one_with_copies_and_its_gradient_their_sum(period: int) -> None:
    shared, copies = tied(period), tied(None)
    weights = shared.state_dict()

    def source(name: str) -> str:
        """slots.3.x of the copies stands in slots.(3 mod period).x of the shared."""
        head, _, rest = name.partition(".")
        if head != "slots":
            return name
        slot, _, rest = rest.partition(".")
        return f"slots.{int(slot) % period}.{rest}"

    copies.load_state_dict({name: weights[source(name)] for name in copies.state_dict()})
    one, two = loss(shared), loss(copies)
    torch.testing.assert_close(one, two, rtol=0, atol=1e-11)
    one.backward()
    two.backward()
    summed: dict[str, torch.Tensor] = {}
    for name, parameter in copies.named_parameters():
        assert parameter.grad is not None
        summed[source(name)] = summed.get(source(name), torch.zeros(())) + parameter.grad
    found = dict(shared.named_parameters())
    assert found.keys() == summed.keys()
    for name, gradient in summed.items():
        torch.testing.assert_close(found[name].grad, gradient, rtol=0, atol=1e-10)


def test_only_slots_that_read_it_have_memory() -> None:
    memory = tied(1).initial_state(2).memory
    assert [rows is not None for rows in memory] == [True, False, True, False, False]


def test_costs_are_those_of_each_slots_own_candidate() -> None:
    one, two = (tied(period).flops_per_token(2, 4, [1.0]) for period in (1, None))
    assert one == two
    assert sum(p.numel() for p in tied(1).parameters()) < sum(
        p.numel() for p in tied(None).parameters()
    )


def test_one_label_must_mean_one_candidate() -> None:
    slots = [[candidate("dense")], [candidate("dense", d_ffn=7)]]
    with pytest.raises(ValueError, match=r"slots\[1\]: dense has other options than in slot 0"):
        tied(1, slots)
    tied(None, slots)


def test_a_tied_model_is_saved_and_loaded(tmp_path: Path) -> None:
    made = architecture("a d a d d", tie_slots=2)
    assert Architecture.from_json(made.to_json(), "x") == made
    model = build_model(made)
    save_model(tmp_path, model, made)
    loaded = load_model(tmp_path)
    ids_BT = tokens(2, 4)
    with torch.no_grad():
        one, two = (m.eval()(ids_BT, m.initial_state(2))[0] for m in (model, loaded))
    assert torch.equal(one, two)
    untied = made.model_copy(update={"tie_slots": None})
    (tmp_path / "architecture.json").write_text(untied.to_json())
    with pytest.raises(ValueError, match=r"slots\.2\..*: missing"):
        load_model(tmp_path)


def test_a_period_that_ties_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="tie_slots: 3 of 3 slots ties nothing"):
        ModelConfig(slots=3, d_model=8, d_ffn=8, tie_slots=3)
