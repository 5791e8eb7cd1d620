"""Dense candidates that share the weights of the widest one.

T segment length   D d_model
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.utils.flop_counter import FlopCounterMode

from model import LanguageModel, ModelConfig, SoftmaxConfig
from model.blocks.dense import Activation
from model.state import Segment
from nas.search.estimators import ESTIMATORS, gumbel_noise, one_hot_net, soft_net
from tests.model.contract import read
from tests.model.tiny import D_MODEL, VOCABULARY, candidate, normal, randomise, tokens

WIDTHS = {"middle": 6, "wide": 10, "narrow": 3}
ACTIVATIONS: list[Activation] = ["relu", "gelu", "swiglu", "geglu"]
SIZES: dict[str, Any] = {
    "d_model": D_MODEL, "vocabulary_size": VOCABULARY, "softmax": SoftmaxConfig()
}  # fmt: skip


def dense(label: str, activation: Activation = "gelu") -> Any:
    return candidate("dense", label=label, d_ffn=WIDTHS[label], activation=activation)


def slots_of(activation: Activation = "gelu", count: int = 3) -> list[Any]:
    """With candidates of other kinds before and between those that share weights."""
    held = [candidate("attention"), dense("middle", activation), dense("wide", activation)]
    return [[*held, candidate("identity"), dense("narrow", activation)]] * count


def supernet(activation: Activation = "gelu", count: int = 3, **options: Any) -> LanguageModel:
    model = LanguageModel(slots_of(activation, count), **SIZES, entangle=True, **options)
    randomise(model)
    return model.eval()


@torch.no_grad()
def cut_out(net: LanguageModel, slots: list[Any], **options: Any) -> LanguageModel:
    """A model of these candidates, each with weights of its own, equal to those of the SuperNet."""
    derived = LanguageModel(slots, **SIZES, **options).double().eval()
    own = net.state_dict()
    for name, tensor in derived.state_dict().items():
        label = name.split(".")[3] if ".blocks." in name or ".norms." in name else ""
        whole = own[name.replace(f".{label}.", ".wide.") if label in WIDTHS else name]
        if ".inner." in name:
            parts = whole.unflatten(0, (-1, WIDTHS["wide"]))
            whole = torch.cat([part[: WIDTHS[label]] for part in parts])
        elif ".outer.weight" in name:
            whole = whole[:, : WIDTHS[label]]
        tensor.copy_(whole)
    return derived


def states(model: LanguageModel, mix: Any = None) -> Tensor:
    return read(model, tokens(2, 9), 4, mix=mix)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_law_3_the_one_hot_supernet_is_the_derived_model(activation: Activation) -> None:
    net, slots = supernet(activation), slots_of(activation)
    for layout in ((1, 2, 4), (4, 4, 0), (3, 1, 2)):
        derived = cut_out(net, [[slots[place][k]] for place, k in enumerate(layout)])
        wanted_BTD = states(derived)
        alpha_LC = 60.0 * one_hot(torch.tensor(layout), 5).double()
        noise_LC = gumbel_noise(0, 0, 3, 5).double() + alpha_LC
        close(states(net, one_hot_net(alpha_LC)), wanted_BTD)
        for mix in (soft_net(alpha_LC), *(f(alpha_LC, noise_LC, 0.3) for f in ESTIMATORS.values())):
            assert float((states(net, mix) - wanted_BTD).detach().abs().max()) < 1e-6


@pytest.mark.parametrize("tie_slots", [None, 2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_mixture_is_the_sum_of_the_candidates(activation: Activation, tie_slots: Any) -> None:
    net = supernet(activation, tie_slots=tie_slots)
    apart = cut_out(net, slots_of(activation), tie_slots=tie_slots)
    assert len(net.slots) == (tie_slots or 3)
    weight_LC = normal(3, 5)
    mix: Any = [list(enumerate(weight_C)) for weight_C in weight_LC]
    mix[1] = [(2, weight_LC[1, 2]), (4, None), (1, weight_LC[1, 1])]
    mix[2] = [(4, weight_LC[2, 4]), (1, weight_LC[2, 1])]
    close(states(net, mix), states(apart, mix))


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_law_7_the_gradient_of_alpha_is_that_of_finite_differences(activation: Activation) -> None:
    net, alpha_LC = supernet(activation), normal(3, 5, seed=5).requires_grad_()
    noise_LC, ids_BT = gumbel_noise(0, 0, 3, 5).double(), tokens(2, 5)

    def loss(alpha_LC: Tensor) -> Tensor:
        mix = ESTIMATORS["soft"](alpha_LC, noise_LC, 0.7)
        h_BTD, _, _ = net(ids_BT, net.initial_state(2), mix)
        return net.nll(h_BTD, ids_BT).mean()

    assert torch.autograd.gradcheck(loss, (alpha_LC,), atol=1e-8)


def test_law_10_only_the_widest_is_computed_and_each_is_counted_as_derived() -> None:
    net, alone = supernet(count=1), {c.label: [[c]] for c in slots_of()[0]}
    (costs,) = net.flops_per_token(2, 4, (1.0,)).slots
    for label, slots in alone.items():
        derived = LanguageModel(slots, **SIZES)
        assert costs[label] == derived.flops_per_token(2, 4, (1.0,)).slots[0][label]
    slot, x_BTD = net.slots[0], normal(2, 4, D_MODEL)
    terms = [(k, torch.ones((), dtype=torch.float64)) for k in (1, 2, 4)]
    for drawn, label in ((terms, "wide"), ([terms[0], terms[2]], "middle"), (terms[2:], "narrow")):
        with FlopCounterMode(display=False) as counter:
            slot(x_BTD, None, Segment(torch.zeros(2), 4), (None,) * 5, drawn)
        assert counter.get_total_flops() == costs[label] * 8


def test_a_supernet_holds_the_weights_once_and_returns_from_a_file() -> None:
    net = supernet()
    names = {name.split(".")[3] for name in net.state_dict() if name.startswith("slots.")}
    assert names == {"attention", "wide"}
    other = LanguageModel(slots_of(), **SIZES, entangle=True).double().eval()
    other.load_state_dict(net.state_dict())
    mix = soft_net(normal(3, 5))
    assert torch.equal(states(other, mix), states(net, mix))


@pytest.mark.parametrize(
    ("candidates", "words"),
    [
        (["attention", "identity"], "there are 0 of them; give two or more"),
        (["attention", "dense", "mixture_of_experts"], "there is 1 of them; give two or more"),
        (["dense", {"kind": "dense", "label": "gated", "d_ffn": 8, "activation": "swiglu"}],
         "need one activation, found relu, swiglu; give one"),
        (["dense", {"kind": "dense", "label": "chunked", "d_ffn": 8, "chunk": 4}],
         "need one chunk, found 1, 4; give one"),
        (["dense", {"kind": "dense", "label": "other"}], r"found \[12, 12\]; give different ones"),
    ],
)  # fmt: skip
def test_what_cannot_share_weights_is_refused(candidates: Any, words: str) -> None:
    sizes: dict[str, Any] = {"slots": 2, "d_model": 8, "d_ffn": 12, "candidates": candidates}
    with pytest.raises(ValueError, match=f"entangle: dense candidates .*{words}"):
        ModelConfig(**sizes, entangle=True)
    ModelConfig(**sizes)
