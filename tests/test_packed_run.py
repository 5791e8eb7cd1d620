"""A real run, packed and made again: byte for byte, and with another setting the right rows."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import compare
import derive
import retrain
import search
from tests.conftest import write_experiment
from tests.runs import Capture, code_of, settings
from tools import pack
from tools.pack import write_archive

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("one run packed")]


def given(monkeypatch: pytest.MonkeyPatch, script: Any, *arguments: str) -> None:
    """A command as it is typed, which alone the run keeps."""
    monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *arguments])
    assert script.main() == 0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Search, derivation, retraining and comparison of the tiny experiment, packed."""
    folder = tmp_path_factory.mktemp("packed")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARNAS_CACHE", str(folder / "cache"))
        # Other work may change the tree meanwhile.
        patched.setattr("training.run_dir.commit", lambda: "abc")
        file, made = write_experiment(folder), folder / "made"
        texts = "compare.baselines=[interleaved]", "run.figures=false"
        given(patched, search, str(file), "--run", str(made), *settings(*texts))
        for script in (derive, retrain, compare):
            given(patched, script, str(made))
        write_archive(made, folder / "made.zip")
        yield folder / "made.zip"


def again(folder: Path, *texts: str) -> Path:
    """The archive's commands once more, in another folder."""
    run, file = folder / "again", write_experiment(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("training.run_dir.commit", lambda: "abc")
        more = settings("compare.baselines=[interleaved]", "run.figures=false", *texts)
        for script in (search, derive, retrain, compare):
            assert code_of(script, file, "--run", run, *more) == 0
    return run


def test_a_run_is_made_again_byte_for_byte(archive: Path, tmp_path: Path, capsys: Capture) -> None:
    run = again(tmp_path)
    capsys.readouterr()
    assert code_of(pack, run, "--check", archive) == 0
    *known, last = capsys.readouterr().out.splitlines()
    assert known
    assert all(line.startswith("data.files.") for line in known)
    assert re.fullmatch(r".*: none of \d\d results differ, times excepted", last)


def test_another_setting_is_named_by_the_rows_that_it_changes(
    archive: Path, tmp_path: Path, capsys: Capture
) -> None:
    run = again(tmp_path, "retrain.optimiser.lr=0.004")
    capsys.readouterr()
    assert code_of(pack, run, "--check", archive) == 1
    lines = capsys.readouterr().out.splitlines()[:-1]
    known = [line for line in lines if line.startswith(("data.", "retrain."))]
    assert known[-1].startswith("retrain.optimiser.lr was ")
    assert known[-1].endswith(", is 0.004")
    names = [line.partition(": ")[0] for line in lines[len(known) :]]
    phase = "retrain/argmax-0/seed-0"
    assert names[0] == f"{phase}/identity.json"
    assert {f"{phase}/metrics.jsonl", f"{phase}/model/model.safetensors"} < set(names)
    assert [name for name in names if not name.startswith(("retrain/", "model/", "comp"))] == []
