"""The model folder: saved, loaded, adjusted, its digest, and the sizes of models not built."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model import (
    Architecture,
    Dropout,
    LanguageModel,
    SoftmaxConfig,
    adjusted,
    build_model,
    load_architecture,
    load_model,
    save_model,
)
from model.saving import _digest, tensors_digest
from tests.model.test_architecture import architecture
from tests.model.tiny import D_MODEL, VOCABULARY, candidate, randomise, tokens


def pair(*, dtype: torch.dtype = torch.float32, **softmax: Any) -> tuple[LanguageModel, Any]:
    architecture = Architecture(
        name="x",
        d_model=D_MODEL,
        blocks=tuple(candidate(kind) for kind in ("attention", "dense", "identity", "attention")),
        softmax=SoftmaxConfig(**softmax),
        vocabulary_size=VOCABULARY,
        tokenizer={"digest": "abc"},
    )
    model = build_model(architecture, dropout=Dropout(residual=0.5))
    randomise(model)
    return model.to(dtype).eval(), architecture


def outputs(model: LanguageModel) -> torch.Tensor:
    _, state, _ = model(tokens(2, 5), model.initial_state(2))
    return model.log_prob(model(tokens(2, 5, seed=4), state)[0])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model, architecture = pair(cutoffs=(5, 11))
    save_model(tmp_path, model, architecture)
    return tmp_path


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("cutoffs", [(), (5, 11)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_loaded_model_is_the_one_that_was_saved(
    tmp_path: Path, tied: bool, cutoffs: tuple[int, ...], dtype: torch.dtype
) -> None:
    model, architecture = pair(dtype=dtype, tied=tied, cutoffs=cutoffs)
    save_model(tmp_path / "new" / "model", model, architecture)
    loaded = load_model(tmp_path / "new" / "model")
    assert torch.equal(outputs(loaded), outputs(model))
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_a_model_of_another_architecture_is_not_saved(tmp_path: Path) -> None:
    model, _ = pair()
    _, architecture = pair(tied=False)
    with pytest.raises(ValueError, match=r"model: does not fit .*embedding\.head"):
        save_model(tmp_path, model, architecture)
    assert list(tmp_path.iterdir()) == []


def test_a_model_loads_with_other_options_and_the_same_weights(saved: Path) -> None:
    _, architecture = pair(cutoffs=(5, 11))
    adjust = {"memory": 2, "window": 4, "clamp": 1}
    loaded = load_model(saved, adjust)
    wanted = build_model(adjusted(architecture, adjust)).eval()
    wanted.load_state_dict(load_model(saved).state_dict())
    assert torch.equal(outputs(loaded), outputs(wanted))
    assert not torch.equal(outputs(loaded), outputs(load_model(saved)))
    assert load_model(saved, {"memory": 2}).longest_memory == 2
    with pytest.raises(ValueError, match=r"^window: Input should be greater than or equal to 1$"):
        load_model(saved, {"window": 0})


def edit(folder: Path, change: Any) -> None:
    path = folder / "architecture.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda v: v["blocks"][1].update(d_ffn=13),
            r"slots\.1\.blocks\.dense\.inner\.weight.*\[12, 8\].*\[13, 8\]",
        ),
        (lambda v: v["blocks"].pop(), r"Unexpected key.*slots\.3\.blocks\.attention\.u_HK"),
        (lambda v: v["softmax"].update(tied=False), r"Missing key.*embedding\.head"),
        (lambda v: v["blocks"][0].update(window=2), r"saved with another architecture\.json"),
        (lambda v: v["blocks"][0].update(clamp=2), r"saved with another architecture\.json"),
        (lambda v: v.update(d_model=65536, blocks=v["blocks"] * 100), r"does not fit .{,1000}$"),
    ],
)
def test_files_that_do_not_fit_are_refused(saved: Path, change: Any, message: str) -> None:
    edit(saved, change)
    with pytest.raises(ValueError, match=rf"(?s)model\.safetensors: .*{message}"):
        load_model(saved)


def test_a_new_name_or_new_evidence_changes_no_model(saved: Path) -> None:
    edit(saved, lambda v: v.update(name="other", provenance={"by": "hand"}))
    load_model(saved)


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=r"model\.safetensors|architecture\.json") as caught:
        load_model(folder)
    return str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_neither_saved_nor_loaded(saved: Path, value: float) -> None:
    net, architecture = pair(cutoffs=(5, 11))
    path = saved / "model.safetensors"
    tensors = load_file(path)
    tensors["norm.bias"][1] = value
    save_file(tensors, path, {"parnas": _digest(load_architecture(saved / "architecture.json"))})
    assert "norm.bias: holds nan or inf" in refused(saved)
    net.norm.bias.data[0] = value
    with pytest.raises(ValueError, match=r"model: norm\.bias: holds nan or inf"):
        save_model(saved, net, architecture)


def test_what_models_were_saved_by_is_what_they_are_known_by() -> None:
    """Of the order of fields too: one that moves would refuse every model that was saved before."""
    digest = _digest(pair(cutoffs=(5, 11))[1])
    assert digest == "772ffcd59c2de44fef5b8ee4cbc996a7d540e469daa38bc0e8d86c47bd2ce739"


def test_what_does_not_fit_is_refused() -> None:
    for layout, options, message in (
        ("d i", {"memory": 3}, r"memory: no block of argmax \(layout d i\) has it"),
        ("a d", {"d_ffn": 3}, r"d_ffn: no block of argmax \(layout a d\) has it"),
        ("a", {"memory": "3"}, "memory: Input should be a valid integer"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            adjusted(architecture(layout), options)


def test_the_digest_is_of_heads_and_bytes_in_the_order_of_the_names() -> None:
    found = {"b": torch.tensor([1, 258], dtype=torch.int16), "a": torch.tensor(True)}
    spelled = b'["a", "torch.bool", []]\n\x01["b", "torch.int16", [2]]\n\x01\x00\x02\x01'
    assert tensors_digest(found) == hashlib.sha256(spelled).hexdigest()
