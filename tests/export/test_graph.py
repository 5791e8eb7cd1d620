"""A graph of ids and memories is the model, for every kind of block and option of a whole model."""

import copy
from typing import Any

import pytest
import torch

from export.blocks import FORMS
from export.graph import GraphModel
from model import BLOCKS, LanguageModel, ModelOptions, SoftmaxConfig
from tests.model.tiny import VOCABULARY, candidate, language_model, tokens

LENGTHS = (5, 1, 17, 3)


def graph_of(model: LanguageModel) -> GraphModel:
    return GraphModel(copy.deepcopy(model))


@torch.no_grad()
def check(model: LanguageModel, batch: int = 2) -> None:
    """The graph's log-probabilities and memories are the model's, segment by segment."""
    graph = graph_of(model)
    memories, state = graph.zeros(batch), model.initial_state(batch, cached=True)
    names = list(memories)
    for number, length in enumerate(LENGTHS):
        ids_BT = tokens(batch, length, seed=number)
        log_prob_BTV, memories = graph(ids_BT, memories)
        h_BTD, state, _ = model(ids_BT, state)
        wanted_BTV = model.log_prob(h_BTD)
        size = max(1.0, float(wanted_BTV.abs().max()))
        torch.testing.assert_close(log_prob_BTV, wanted_BTV, rtol=0, atol=1e-12 * size)
        assert list(memories) == names
        assert torch.equal(memories["seen"], state.seen_B)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_graph_computes_every_kind_or_refuses_it_by_name(kind: str) -> None:
    model = language_model([[candidate(kind)]] * 2)
    if BLOCKS[kind].block in FORMS:
        check(model)
        return
    with pytest.raises(ValueError, match=rf"^{kind}: no graph"):
        graph_of(model)


MADE = {
    "window": candidate("attention", window=4, memory=3),
    "window beyond the memory": candidate("attention", window=9),
    "clamp and grouped queries": candidate("attention", clamp=3, n_kv_heads=1),
    "no memory": candidate("attention", memory=0),
    "rope": candidate("attention", positions="rope", qk_norm=True, n_kv_heads=1, window=4),
    "rope with a clamp": candidate("attention", positions="rope", clamp=3),
    "no positions": candidate("attention", positions="none", qk_norm=True, window=9),
    "relative and normed": candidate("attention", qk_norm=True, clamp=3),
    "all-attention with rope": candidate("all_attention", positions="rope", qk_norm=True),
    "fading with rope": candidate("adaptive_span", span=6, positions="rope", sees_itself=False),
    "fading without positions": candidate("adaptive_span", span=6, ramp=3, positions="none"),
    "routing with rope": candidate("routing", memory=9, keys=3, clusters=3, positions="rope"),
    "squared": candidate("dense", activation="relu2"),
    "all-attention in groups": candidate("all_attention", window=4, memory=3, n_kv_heads=1),
    "fading": candidate("adaptive_span", span=12, ramp=3),
    "learned positions": candidate("adaptive_span", span=6, ramp=3, positions="learned"),
    "not itself": candidate("adaptive_span", span=6, ramp=3, sees_itself=False),
    "as in its paper": candidate(
        "adaptive_span", span=9, ramp=2, positions="learned", sees_itself=False
    ),
    "a narrow convolution": candidate("short_conv", kernel=1),
    "routing alone": candidate("routing", memory=9, keys=3, clusters=3, n_local_heads=0),
    "routing beside a window": candidate("routing", memory=9, keys=3, clusters=3),
    "routing without memory": candidate("routing", memory=0, keys=1),
    "dense in parts": candidate("dense", chunk=3, activation="geglu"),
    "one expert of three": candidate("mixture_of_experts", n_experts=3, k=1, activation="swiglu"),
}


@pytest.mark.parametrize("name", MADE)
def test_a_graph_heeds_the_options_of_a_kind(name: str) -> None:
    check(language_model([[MADE[name]]] * 2), batch=3)


@pytest.mark.parametrize(
    ("options", "softmax"),
    [
        ({"norm": "rms"}, {}),
        ({"norm": "scale", "norm_position": "post"}, {"cutoffs": (5, 11), "tied": False}),
        ({"norm_position": "post", "last_norm": False}, {}),
        ({"token_shift": True}, {"cutoffs": (5, 11)}),
        ({"d_embedding": 4}, {"cutoffs": (5, 11)}),
        ({"rezero": True, "token_shift": True}, {"tied": False}),
    ],
)
def test_a_graph_heeds_the_options_of_a_model(
    options: dict[str, Any], softmax: dict[str, Any]
) -> None:
    slots = [[candidate(kind)] for kind in BLOCKS]
    model = language_model(slots, options=ModelOptions(**options), **softmax)
    for parameter in model.parameters():
        # Without norms the numbers grow from slot to slot.
        parameter.data *= 0.5
    check(model)


def test_a_graph_of_tied_slots_carries_what_each_slot_keeps() -> None:
    made = [candidate("attention"), candidate("dense"), candidate("gated_delta")]
    model = language_model([[each] for each in (*made, *made)])
    tied = LanguageModel(
        [[each] for each in (*made, *made)], d_model=8, vocabulary_size=VOCABULARY,
        softmax=SoftmaxConfig(cutoffs=(5,)), tie_blocks=3,
    ).double().eval()  # fmt: skip
    check(tied)
    assert set(graph_of(tied).zeros(1)) == set(graph_of(model).zeros(1))


@pytest.mark.parametrize("softmax", [{}, {"cutoffs": (5, 11)}, {"tied": False}])
@pytest.mark.parametrize("wrong", [-1, VOCABULARY, 2**40])
def test_an_id_that_the_vocabulary_lacks_is_refused(softmax: dict[str, Any], wrong: int) -> None:
    graph = graph_of(language_model([[candidate("identity")]], **softmax))
    with pytest.raises(IndexError):
        graph(torch.tensor([[0, wrong]]), graph.zeros(1))
