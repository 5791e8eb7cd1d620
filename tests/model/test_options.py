"""Options of the whole model: the contract under them, and each against a slow reference.

B batch   T segment length   M memory length   D d_model   E width of the embedding
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model import (
    BLOCKS,
    Architecture,
    LanguageModel,
    ModelConfig,
    ModelOptions,
    build_model,
    load_model,
    network_of,
    save_model,
)
from tests.model.contract import CONTRACT, read
from tests.model.test_architecture import architecture
from tests.model.tiny import D_MODEL, candidate, language_model, randomise, tokens

ALL = ModelOptions(
    norm="scale", norm_position="post", last_norm=False, token_shift=True, d_embedding=3
)
OTHERS = [
    ModelOptions(norm="rms", token_shift=True),
    ModelOptions(rezero=True, token_shift=True, d_embedding=5),
]
# Without memory, with a memory, and with a state that is carried.
KINDS = ("dense", "attention", "gated_delta")
CASES = [(kind, ALL) for kind in BLOCKS if not BLOCKS[kind].adds_nothing]
CASES += [(kind, options) for kind in KINDS for options in OTHERS]


def words(options: ModelOptions) -> str:
    return " ".join(f"{name}={value}" for name, value in options.changed().items())


@pytest.mark.parametrize(
    ("kind", "options"), CASES, ids=[f"{kind} {words(options)}" for kind, options in CASES]
)
def test_laws_1_to_5_hold_for_every_kind_under_options(kind: str, options: ModelOptions) -> None:
    for check in CONTRACT:
        check(candidate(kind), options)


def _norm(kind: str, x_D: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """A row's norm by its equation."""
    if kind == "scale":
        return weights["weight"] * x_D / (x_D * x_D).sum().sqrt()
    centred_D = x_D - (x_D.mean() if kind == "layer" else 0.0)
    scaled_D = centred_D / ((centred_D * centred_D).mean() + 1e-5).sqrt()
    return weights["weight"] * scaled_D + weights.get("bias", 0.0)


def _reference(model: LanguageModel, ids: list[int]) -> Tensor:
    """(T, D) hidden states of dense slots, row by row."""
    options, weights, half = model.options, model.state_dict(), D_MODEL - D_MODEL // 2

    def below(place: str) -> dict[str, Tensor]:
        return {name[len(place) :]: t for name, t in weights.items() if name.startswith(place)}

    def normed(place: str, x_D: Tensor) -> Tensor:
        return x_D if options.rezero else _norm(options.norm, x_D, below(place))

    table, factor = weights["softmax.head"], weights.get("softmax.head_projection")
    row_D = [(table[i] if factor is None else table[i] @ factor) * D_MODEL**0.5 for i in ids]
    post = options.norm_position == "post"
    for slot in range(len(model.slots)):
        own = f"slots.{slot}.norms.dense."
        layers = below(f"slots.{slot}.blocks.dense.")
        read_D = row_D if post else [normed(own, x_D) for x_D in row_D]
        if options.token_shift:
            past_D = [torch.zeros(D_MODEL).double(), *read_D]
            read_D = [torch.cat([c_D[:half], past_D[t][half:]]) for t, c_D in enumerate(read_D)]
        for t, c_D in enumerate(read_D):
            inner_F = (layers["inner.weight"] @ c_D + layers["inner.bias"]).clamp(min=0)
            f_D = layers["outer.weight"] @ inner_F + layers["outer.bias"]
            f_D = weights.get(f"slots.{slot}.factors.dense.weight", 1.0) * f_D
            row_D[t] = normed(own, row_D[t] + f_D) if post else row_D[t] + f_D
    return torch.stack([normed("norm.", x_D) if options.last_norm else x_D for x_D in row_D])


SINGLE = [
    ModelOptions(),
    ModelOptions(norm="rms"),
    ModelOptions(norm="scale"),
    ModelOptions(norm_position="post"),
    ModelOptions(norm_position="post", last_norm=False),
    ModelOptions(token_shift=True),
    ModelOptions(d_embedding=3),
    ModelOptions(rezero=True),
    ALL,
]


@pytest.mark.parametrize("options", SINGLE, ids=words)
def test_a_model_is_what_its_options_say(options: ModelOptions) -> None:
    model, ids_BT = language_model([[candidate("dense")]] * 2, options=options), tokens(2, 9)
    found_BTD = read(model, ids_BT, [4, 1, 4])
    wanted_BTD = torch.stack([_reference(model, ids) for ids in ids_BT.tolist()])
    torch.testing.assert_close(found_BTD, wanted_BTD, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [ALL, *OTHERS], ids=words)
def test_a_model_with_options_is_saved_loaded_and_counted(
    options: ModelOptions, tmp_path: Path
) -> None:
    made = architecture("a d a d d", options=options, costs=None, tie_blocks=2)
    assert Architecture.from_json(made.to_json(), "x") == made
    model = build_model(made).double().eval()
    randomise(model)
    save_model(tmp_path, model, made)
    loaded, ids_BT = load_model(tmp_path), tokens(2, 6)
    found, wanted = (read(one, ids_BT, 4) for one in (loaded, model))
    assert torch.equal(found, wanted)
    other = options.model_copy(update={"token_shift": not options.token_shift})
    for given, said in ((ModelOptions(), "does not fit"), (other, "saved with another arch")):
        changed = made.model_copy(update={"options": given})
        (tmp_path / "architecture.json").write_text(changed.to_json())
        with pytest.raises(ValueError, match=said):
            load_model(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rezero": True, "norm": "rms"}, "norm: rms has no effect with rezero"),
        ({"rezero": True, "norm_position": "post"}, "norm_position: post has no effect with rez"),
        ({"rezero": True, "last_norm": False}, "last_norm: False has no effect with rezero"),
        ({"last_norm": False}, "last_norm: false leaves the sum of the blocks without a norm"),
        ({"d_embedding": 8}, "d_embedding: 8 is not below d_model 8"),
        ({"token_shift": True, "d_model": 1}, "token_shift: half of d_model 1 is no channel"),
    ],
)
def test_options_without_meaning_are_refused(given: dict[str, Any], said: str) -> None:
    sizes = {"n_blocks": 1, "d_model": 8, "d_ffn": 8, "n_heads": 1, **given}
    with pytest.raises(ValueError, match=said):
        ModelConfig(**sizes)
    rest = {name: value for name, value in given.items() if name != "d_model"}
    with pytest.raises(ValueError, match=rf"options\.{said}"):
        architecture(options=rest, d_model=sizes["d_model"])


@pytest.mark.parametrize("activation", ["relu", "geglu"])
def test_a_dense_block_in_parts_is_the_same(activation: str) -> None:
    whole, parts = (candidate("dense", activation=activation, d_ffn=400, chunk=n) for n in (1, 8))
    models = [language_model([[made]]) for made in (whole, parts)]
    h, grads = [], []
    for model in models:
        h_BTD = read(model, tokens(2, 13), 13)
        h_BTD.square().sum().backward()
        h.append(h_BTD)
        grads.append([parameter.grad for parameter in model.slots[0].parameters()])
    torch.testing.assert_close(*h, rtol=0, atol=1e-11)
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)
    assert network_of([whole], None) == network_of([parts], None)
