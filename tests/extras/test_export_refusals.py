"""What `python -m tools.export` refuses: one line, exit code 2, and nothing is left behind."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model import load_model
from tests.extras.huggingface import save_source
from tests.model.tiny import candidate
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
    assert "one by one: 2 blocks, " in card
    assert "| 1 | dense | dense | " in card
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
        assert "is inside the model folder" in refusal(capsys, model, inside)
    (model.parent / "way").symlink_to(model)
    assert "is inside the model folder" in refusal(capsys, model, model.parent / "way" / "out")


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
