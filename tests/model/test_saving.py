"""The model folder."""

import json
import os
import subprocess
import sys
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
    load_model,
    save_model,
)
from tests.model.tiny import D_MODEL, VOCABULARY, candidate, randomise, tokens

ROOT = Path(__file__).parents[2]


def pair(*, dtype: torch.dtype = torch.float32, **softmax: Any) -> tuple[LanguageModel, Any]:
    architecture = Architecture(
        name="x",
        d_model=D_MODEL,
        slots=tuple(candidate(kind) for kind in ("attention", "dense", "identity", "attention")),
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
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_loaded_model_is_the_one_that_was_saved(
    tmp_path: Path, tied: bool, cutoffs: tuple[int, ...], dtype: torch.dtype
) -> None:
    model, architecture = pair(dtype=dtype, tied=tied, cutoffs=cutoffs)
    save_model(tmp_path / "new" / "model", model, architecture)
    loaded = load_model(tmp_path / "new" / "model")
    assert torch.equal(outputs(loaded), outputs(model))
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())


def test_a_loaded_model_does_not_change_with_the_file(saved: Path) -> None:
    loaded = load_model(saved)
    before = {name: tensor.clone() for name, tensor in loaded.state_dict().items()}
    path = saved / "model.safetensors"
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert all(torch.equal(before[name], now) for name, now in loaded.state_dict().items())


def test_the_folder_holds_two_files_that_others_may_read(saved: Path) -> None:
    assert sorted(os.listdir(saved)) == ["architecture.json", "model.safetensors"]
    umask = os.umask(0)
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in saved.iterdir()} == {0o666 & ~umask}


def test_saving_twice_gives_the_same_bytes(saved: Path) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    save_model(saved, *pair(cutoffs=(5, 11)))
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    saved: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}

    def fail(*arguments: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="no space left"):
        save_model(saved, *pair(cutoffs=(5, 11)))
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_a_model_of_another_architecture_is_not_saved(tmp_path: Path) -> None:
    model, _ = pair()
    _, architecture = pair(tied=False)
    with pytest.raises(ValueError, match=r"model: embedding\.head: missing"):
        save_model(tmp_path, model, architecture)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_from_before_the_option_clamp_loads(saved: Path) -> None:
    """Its two files as they were written then: without the key, and with this hash."""
    path = saved / "model.safetensors"
    then = "2c848f22dbcd9091f5e90230f2035cb23876e697620b3186d456849b530a7f9e"
    save_file(load_file(path), path, metadata={"architecture_sha256": then})
    assert "clamp" not in (saved / "architecture.json").read_text()
    assert torch.equal(outputs(load_model(saved)), outputs(pair(cutoffs=(5, 11))[0]))


def test_a_model_loads_with_other_options_and_the_same_weights(saved: Path) -> None:
    _, architecture = pair(cutoffs=(5, 11))
    adjust = {"memory": 2, "window": 4, "clamp": 1}
    loaded = load_model(saved, adjust)
    wanted = build_model(adjusted(architecture, adjust)).eval()
    wanted.load_state_dict(load_model(saved).state_dict())
    assert torch.equal(outputs(loaded), outputs(wanted))
    assert not torch.equal(outputs(loaded), outputs(load_model(saved)))
    assert load_model(saved, {"memory": 2}).slots[0].memory_rows == 2
    with pytest.raises(ValueError, match=r"^window: must be greater than or equal to 1, found 0$"):
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
            lambda v: v["slots"][1].update(d_ffn=13),
            r"slots\.1\.blocks\.dense\.inner\.weight: shape \[12, 8\], "
            r"the architecture says \[13, 8\]",
        ),
        (lambda v: v["slots"].pop(), r"slots\.3\.blocks\.attention\.u_HK: no such tensor"),
        (lambda v: v["softmax"].update(tied=False), r"embedding\.head: missing"),
        (lambda v: v["slots"][0].update(window=2), r"saved with another architecture\.json"),
        (lambda v: v["slots"][0].update(clamp=2), r"saved with another architecture\.json"),
        (
            lambda v: v.update(d_model=65536, slots=v["slots"] * 100),
            r"model\.safetensors: and \d+ more problems$",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(saved: Path, change: Any, message: str) -> None:
    edit(saved, change)
    with pytest.raises(ValueError, match=rf"(?s)model\.safetensors: .*{message}"):
        load_model(saved)


def test_a_new_name_or_new_evidence_changes_no_model(saved: Path) -> None:
    edit(saved, lambda v: v.update(name="other", provenance={"by": "hand"}))
    load_model(saved)


@pytest.mark.parametrize("keep", [0, 7, 300, -1])
def test_a_damaged_file_is_named(saved: Path, keep: int) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors: damaged"):
        load_model(saved)


def test_tensors_of_another_type_are_named(saved: Path) -> None:
    path = saved / "model.safetensors"
    tensors = load_file(path)
    tensors["norm.bias"] = tensors["norm.bias"].to(torch.int32)
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"model\.safetensors: norm\.bias: type I32"):
        load_model(saved)


def test_a_missing_file_is_an_os_error(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        load_model(saved)


def test_a_model_loads_where_only_this_package_can_be_imported(saved: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('nas', 'training', 'data', 'report', 'export', 'hpo', 'pipeline'):\n"
        "    sys.modules[name] = None\n"
        "from model import load_model\n"
        f"model = load_model({str(saved)!r})\n"
        "import torch\n"
        "h, _, _ = model(torch.zeros(1, 3, dtype=torch.int64), model.initial_state(1))\n"
        "print(tuple(h.shape))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "(1, 3, 8)\n"), done.stderr
