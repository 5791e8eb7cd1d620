"""Model folders that hold nan, are of an older version, or ask for terabytes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import model.saving
from model import LanguageModel, load_model, save_model
from tests.model.test_saving import edit, outputs, pair

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path, *pair(dtype=torch.float32, cutoffs=(5, 11)))
    return tmp_path


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError, match=r"model\.safetensors|architecture\.json") as caught:
        load_model(folder)
    return str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_neither_saved_nor_loaded(folder: Path, value: float) -> None:
    model_, architecture = pair(cutoffs=(5, 11))
    path = folder / WEIGHTS
    tensors = load_file(path)
    tensors["norm.bias"][1] = value
    save_file(tensors, path, {"architecture_sha256": old_digest(path.parent)})
    assert "norm.bias: holds nan or inf" in refusal(folder)
    model_.norm.bias.data[0] = value
    with pytest.raises(ValueError, match=r"model: norm\.bias: holds nan or inf"):
        save_model(folder, model_, architecture)


def old_digest(folder: Path) -> str:
    return model.saving._digest(model.saving.load_architecture(folder / "architecture.json"))


def test_a_file_without_a_digest_of_its_tensors_still_loads(folder: Path) -> None:
    path = folder / WEIGHTS
    before = outputs(load_model(folder))
    save_file(load_file(path), path, {"architecture_sha256": old_digest(folder)})
    assert torch.equal(outputs(load_model(folder)), before)
    save_file(load_file(path), path, {"architecture_sha256": "0" * 64})
    assert "another architecture.json" in refusal(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.update(d_model=2**16, vocabulary_size=2**24, softmax={}),
        lambda v: v.update(d_model=2**16, slots=v["slots"] * 1024),
        lambda v: v["slots"][1].update(d_ffn=2**20),
        lambda v: v["slots"][0].update(n_heads=4096, d_head=2**16),
        lambda v: v["softmax"].update(cutoffs=list(range(1, 23))[:20], factor=1024),
        lambda v: v["softmax"].update(cutoffs=[5, 11], factor=1e308),
        lambda v: v["softmax"].update(cutoffs=[5, 11], sizes=[2**16, 2**16]),
    ],
)
def test_an_architecture_of_terabytes_builds_nothing(
    folder: Path, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*arguments: Any) -> LanguageModel:
        raise AssertionError("built")

    monkeypatch.setattr(model.saving, "build_model", build)
    edit(folder, change)
    refusal(folder)
