"""The whole model: tying, mixes, causality, costs."""

import math
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model import Dropout, LanguageModel, SoftmaxConfig
from tests.model.tiny import D_MODEL, VOCABULARY, candidate, language_model, normal, tokens

LAYERS = [[candidate(kind)] for kind in ("attention", "dense", "identity", "attention")]
SOFTMAXES: list[dict[str, Any]] = [
    {"cutoffs": cutoffs, "tied": tied} for cutoffs in ((), (5, 11)) for tied in (True, False)
]
every_softmax = pytest.mark.parametrize("softmax", SOFTMAXES, ids=str)


@every_softmax
def test_no_token_changes_an_earlier_prediction(softmax: dict[str, Any]) -> None:
    model = language_model(LAYERS, **softmax)
    ids_BT = tokens(2, 12)
    _, state, _ = model(tokens(2, 3, seed=8), model.initial_state(2))
    before = model.log_prob(model(ids_BT, state)[0])
    for changed in range(1, 12):
        other_BT = ids_BT.clone()
        other_BT[:, changed:] = tokens(2, 12 - changed, seed=20 + changed)
        after = model.log_prob(model(other_BT, state)[0])
        torch.testing.assert_close(before[:, :changed], after[:, :changed], rtol=0, atol=1e-12)


@every_softmax
def test_a_state_dict_holds_each_tensor_once(softmax: dict[str, Any]) -> None:
    model = language_model(LAYERS, **softmax)
    state = model.state_dict()
    assert state.keys() == dict(model.named_parameters()).keys()
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
    assert any(name.startswith("embedding.") for name in state) == (not softmax["tied"])


@every_softmax
def test_a_gradient_reaches_every_parameter(softmax: dict[str, Any]) -> None:
    model = language_model(LAYERS, **softmax)
    ids_BT = torch.arange(VOCABULARY)[None]
    h_BTD, _, aux = model(ids_BT, model.initial_state(1))
    assert aux is None
    model.nll(h_BTD, ids_BT.flip(1)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_a_tied_table_learns_from_both_ends() -> None:
    tied, free = language_model(LAYERS), language_model(LAYERS, tied=False)
    weights = tied.state_dict()
    free.load_state_dict({**weights, "embedding.head": weights["softmax.head"]})
    ids_BT = tokens(2, 9)
    for model in (tied, free):
        h_BTD, _, _ = model(ids_BT, model.initial_state(2))
        model.nll(h_BTD, ids_BT.roll(1, dims=1)).sum().backward()
    assert free.embedding is not None
    tied_grad, *ends = (
        table.grad for table in (tied.softmax.head, free.embedding.head, free.softmax.head)
    )
    torch.testing.assert_close(tied_grad, sum(ends))


def test_identity_everywhere_is_embedding_norm_softmax() -> None:
    model, ids_BT = language_model([[candidate("identity")]] * 3), tokens(2, 5)
    h_BTD, state, _ = model(ids_BT, model.initial_state(2))
    assert torch.equal(h_BTD, model.norm(model.softmax.embed(ids_BT)))
    assert state.memory == (None,) * 3


def test_identity_slots_can_be_removed() -> None:
    ids_BT = tokens(2, 9)
    model = language_model(LAYERS)
    less = language_model([layer for layer in LAYERS if layer[0].kind != "identity"])
    weights = model.state_dict()
    less.load_state_dict(
        {name: weights[name.replace("slots.2", "slots.3")] for name in less.state_dict()}
    )
    h_BTD, wanted_BTD = (m(ids_BT, m.initial_state(2))[0] for m in (model, less))
    torch.testing.assert_close(h_BTD, wanted_BTD, rtol=0, atol=1e-12)


def test_several_candidates_need_a_mix() -> None:
    model = language_model([LAYERS[0], [*LAYERS[0], *LAYERS[1]]])
    with pytest.raises(ValueError, match="mix: slot 1 has 2 candidates"):
        model(tokens(1, 3), model.initial_state(1))


def test_every_weight_of_a_soft_mix_gets_a_gradient() -> None:
    candidates = [candidate(kind) for kind in ("attention", "dense", "identity")]
    model, ids_BT = language_model([candidates] * 2), tokens(2, 7)
    alpha_LC = normal(2, 3).requires_grad_()
    mix = [list(enumerate(weight_C)) for weight_C in alpha_LC.softmax(-1)]
    h_BTD, _, _ = model(ids_BT, model.initial_state(2), mix)
    model.nll(h_BTD, ids_BT.roll(1, dims=1)).sum().backward()
    assert alpha_LC.grad is not None
    assert (alpha_LC.grad.abs() > 1e-8).all()


def test_evaluation_draws_no_random_number() -> None:
    model, ids_BT = language_model(LAYERS, dropout=Dropout(residual=0.3)), tokens(2, 7)
    before = torch.get_rng_state()
    first, second = (model(ids_BT, model.initial_state(2))[0] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())
    model.train()
    assert not torch.equal(model(ids_BT, model.initial_state(2))[0], first)


def test_each_place_has_its_own_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, ...], float]] = []

    def recorded(like: torch.Tensor, rate: float) -> tuple[torch.Tensor, float]:
        seen.append((tuple(like.shape), rate))
        return torch.ones_like(like), 1.0

    rates = Dropout(residual=0.1, embedding=0.2, attention=0.3, dense=0.4)
    model, ids_BT = language_model(LAYERS[:2], dropout=rates), tokens(3, 7)
    for place in ("ops", "attention_kernels"):
        monkeypatch.setattr(f"model.{place}.keep", recorded)
    model.train()(ids_BT, model.initial_state(3))
    delta, heads, keys, d_ffn = (3, 7, D_MODEL), 2, 6 + 7, 12
    attention = [((3 * heads, 7, keys), 0.3), (delta, 0.1)]
    dense = [((3, 7, d_ffn), 0.4), (delta, 0.1)]
    assert seen == [(delta, 0.2), *attention, *dense, (delta, 0.1)]


def test_evaluation_drops_nothing_anywhere() -> None:
    rates = Dropout(residual=0.5, embedding=0.5, attention=0.5, dense=0.5)
    one, two = (language_model(LAYERS, dropout=dropout) for dropout in (rates, Dropout()))
    ids_BT = tokens(2, 7)
    found, wanted = (model(ids_BT, model.initial_state(2))[0] for model in (one, two))
    assert torch.equal(found, wanted)


@every_softmax
def test_declared_flops_are_those_that_torch_counts(softmax: dict[str, Any]) -> None:
    model = language_model(LAYERS, **softmax)
    ids_BT = torch.tensor([[0, 3, 6, 12, 22], [1, 1, 9, 2, 4]])
    clusters = torch.bucketize(ids_BT, torch.tensor(softmax["cutoffs"]).long(), right=True)
    mass = clusters.flatten().bincount(minlength=len(softmax["cutoffs"]) + 1).double() / 10
    with FlopCounterMode(display=False) as counter:
        h_BTD, _, _ = model(ids_BT, model.initial_state(2))
        model.nll(h_BTD, ids_BT)
    costs = model.flops_per_token(2, 5, mass.tolist())
    assert costs.total * 10 == pytest.approx(counter.get_total_flops(), rel=1e-12)
    assert costs.slots[2] == {"identity": 0.0}
    memory = 6
    width, keys = D_MODEL, memory + 5
    assert costs.slots[0]["attention"] == pytest.approx(
        2 * D_MODEL * width * (4 + 2 * memory / 5 + keys / 10) + 6 * width * keys
    )


def test_a_float32_model_starts_near_the_uniform_distribution() -> None:
    torch.manual_seed(0)
    model = LanguageModel(
        LAYERS, d_model=D_MODEL, vocabulary_size=VOCABULARY, softmax=SoftmaxConfig()
    )
    ids_BT = tokens(4, 9)
    h_BTD, state, _ = model(ids_BT, model.initial_state(4))
    nll = model.nll(h_BTD, tokens(4, 9, seed=2)).mean().item()
    assert nll == pytest.approx(math.log(VOCABULARY), abs=0.1)
    assert state.memory[0] is not None
    assert state.memory[0].dtype == torch.float32
