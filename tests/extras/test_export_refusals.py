"""What `python -m tools.export` refuses: one line, exit code 2, and nothing is left behind."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from data.tokenizers import TOKENIZERS
from data.tokenizers.sentencepiece import train_pieces
from model import TokenizerIdentity, load_architecture, load_model, save_model
from tests.data.models import TEXT, ranked
from tests.extras.huggingface import save_source
from tests.model.tiny import candidate
from tests.refusal import refused as refused_plainly
from tests.runs import refused
from tools import export as command

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_source(tmp_path / "model", candidate("attention"), candidate("dense"))
    return tmp_path / "model"


def refusal(capsys: Capture, model: Path, out: Path) -> str:
    """The one line of an export that must fail and leave all as it was."""
    before = {path: path.lstat().st_mtime_ns for path in sorted(model.parent.rglob("*"))}
    said = refused(command, capsys, model, "--to", "hf", out)
    after = {path: path.lstat().st_mtime_ns for path in sorted(model.parent.rglob("*"))}
    assert after == before
    return said


def test_a_model_is_exported_into_a_new_folder_or_an_empty_one(
    model: Path, capsys: Capture
) -> None:
    for name in ("new/and/deep", "empty"):
        out = model.parent / name
        if name == "empty":
            out.mkdir()
        assert command.main([str(model), "--to", "hf", str(out)]) == 0
        assert capsys.readouterr().out.endswith(f"written: {out}\n")
        assert sorted(path.name for path in out.iterdir()) == [
            "README.md", "config.json", "generation_config.json",
            "model.safetensors", "modeling_parnas.py", "tokenizer.json", "tokenizer_config.json",
        ]  # fmt: skip
        assert [path.name for path in out.parent.iterdir() if path.name.startswith(".")] == []
    tensors = load_file(out / "model.safetensors")
    own = load_model(model).state_dict()
    assert all(torch.equal(tensors[f"model.{name}"], own[name]) for name in own)
    card = (out / "README.md").read_text()
    assert "layout `a d`" in card
    assert "| run | some \\| run |" in card


def test_a_folder_that_is_taken_is_not_touched(model: Path, capsys: Capture) -> None:
    taken = model.parent / "taken"
    taken.mkdir()
    (taken / "file").touch()
    assert "taken: is not empty, and nothing is written over" in refusal(capsys, model, taken)
    assert "is no folder; give a new one" in refusal(capsys, model, taken / "file")
    (model.parent / "link").symlink_to(model.parent / "elsewhere")
    assert "is no folder" in refusal(capsys, model, model.parent / "link")
    for inside in (model / "out", model / "x" / ".." / "out", model / ".." / "model" / "a" / "b"):
        assert "lies in the model folder" in refusal(capsys, model, inside)
    (model.parent / "way").symlink_to(model)
    assert "lies in the model folder" in refusal(capsys, model, model.parent / "way" / "out")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "extra.PKL", "optimizer.pt"])
def test_a_pickle_is_refused(model: Path, capsys: Capture, name: str) -> None:
    (model / name).write_bytes(b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\x07builtins.")
    said = refusal(capsys, model, model.parent / "out")
    assert f"{name}: looks like a pickle" in said


def test_a_changed_tokenizer_is_seen(model: Path, capsys: Capture) -> None:
    whole = bytearray((model / "tokenizer.json").read_bytes())
    whole[-3] ^= 1
    (model / "tokenizer.json").write_bytes(whole)
    assert "tokenizer.json: " in refusal(capsys, model, model.parent / "out")


def test_shapes_that_no_tensor_has_take_no_memory(model: Path, capsys: Capture) -> None:
    content = json.loads((model / "architecture.json").read_text())
    wide = json.loads(json.dumps(content))
    wide["slots"][1]["d_ffn"] = 2**20
    (model / "architecture.json").write_text(json.dumps(wide))
    said = refused_plainly(command.main, capsys, model, "--to", "hf", model.parent / "out")
    assert "model.safetensors: does not fit" in said.splitlines()[0]
    assert "shape [12, 8], the architecture says [1048576, 8]" in said
    assert len(said.splitlines()) == 4
    (model / "architecture.json").write_text(json.dumps({**content, "vocabulary_size": 2**24}))
    assert "257 ids) is not the one that the model was trained with" in refusal(
        capsys, model, model.parent / "out"
    )


def test_a_tokenizer_of_another_size_is_refused(model: Path, capsys: Capture) -> None:
    other = ranked(TOKENIZERS["bpe"].load(train_pieces("bpe", [TEXT * 3], 340), False))
    other.save(model)
    assert "is not the one that the model was trained with" in refusal(
        capsys, model, model.parent / "out"
    )
    architecture = load_architecture(model / "architecture.json").model_copy(
        update={"tokenizer": TokenizerIdentity(digest=other.digest)}
    )
    save_model(model, load_model(model), architecture)
    assert "340 ids) is not the one that the model" in refusal(capsys, model, model.parent / "out")


def test_weights_of_other_numbers_are_refused(tmp_path: Path, capsys: Capture) -> None:
    source = save_source(tmp_path / "model", candidate("dense"))
    save_model(source.folder, source.model.double(), source.architecture)
    said = refusal(capsys, source.folder, tmp_path / "out")
    assert "float64 cannot be carried" in said


def test_an_export_that_fails_half_way_leaves_nothing(
    model: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(content: object, metadata: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("export.huggingface.folder.save", full)
    out = model.parent / "out"
    said = refused(command, capsys, model, "--to", "hf", out)
    assert "No space left on device" in said
    assert not out.exists()
    assert [path.name for path in model.parent.iterdir() if path.name.startswith(".")] == []
