"""The command that carries a model away: what it refuses before it needs any extra package."""

import json
import shutil
from pathlib import Path

import pytest

from tests.refusal import refused
from tools import export as command


def test_a_missing_package_is_named_with_what_brings_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("utils.validation.find_spec", lambda name: None)
    said = refused(command.main, capsys, tmp_path, "--to", "hf", tmp_path / "out")
    assert said == (
        "--to hf: the package transformers is missing; pip install -r requirements-extras.lock\n"
    )


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
