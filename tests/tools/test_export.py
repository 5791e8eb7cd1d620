"""The command that carries a model away: what it refuses before it needs any extra package."""

import json
import shutil
from pathlib import Path

import pytest

from export import EXPORTERS, Exporter
from tests.refusal import refused
from tools import export as command


def test_a_missing_package_is_named_with_what_brings_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("utils.validation.find_spec", lambda name: None)
    said = refused(command.main, capsys, tmp_path, "--to", "hf", tmp_path / "out")
    assert said == (
        "--to hf: the package transformers is missing; pip install 'transformers>=4.57,<6'\n"
    )


def test_an_option_goes_with_its_exporter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []

    def write(source: object, folder: Path, **options: object) -> list[str]:
        written.append(options)
        (folder / "x").touch()
        return ["done"]

    one = Exporter("one", "hf", (), "tests.tools.test_export:write", {
        "--int8": {"action": "store_true", "help": "small"},
        "--data-file": {"type": Path, "help": "a text (default: none)"},
    })  # fmt: skip
    monkeypatch.setitem(EXPORTERS, "one", one)
    monkeypatch.setattr(command, "import_module", lambda name: type("M", (), {"write": write}))
    monkeypatch.setattr(command, "read_source", lambda folder: None)
    out, line = tmp_path / "out", [str(tmp_path / "model"), "--to", "one"]
    assert command.main([*line, str(out), "--int8", "--data-file", "a"]) == 0
    assert command.main([*line, str(tmp_path / "more")]) == 0
    assert written == [{"int8": True, "data_file": Path("a")}, {}]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["more", "out", "x", "x"]
    assert capsys.readouterr().out.endswith(f"done\nwritten: {tmp_path / 'more'}\n")
    said = refused(command.main, capsys, tmp_path, "--to", "hf", out, "--data-file", "a")
    assert said == "--data-file: goes with --to one; leave it out\n"


@pytest.mark.parametrize("copied", [False, True])
def test_an_exporter_is_given_the_result_beside_or_above_the_model(
    undisturbed: Path, tmp_path: Path, copied: bool
) -> None:
    """Above it in a training's folder, beside it in RUN/model."""
    (result,) = undisturbed.glob("retrain/*/seed-0/result.json")
    folder = result.with_name("model")
    if copied:
        folder = Path(shutil.copytree(folder, tmp_path / "model"))
        assert command.read_source(folder).result is None
        shutil.copy(result, folder)
    assert command.read_source(folder).result == json.loads(result.read_text())
