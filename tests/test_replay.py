"""A real run, packed and made again: byte for byte, and with another setting the right row."""

import importlib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import compare
import derive
import retrain
import search
from tests.conftest import write_experiment
from tests.runs import Capture, code_of, settings
from tools import replay
from tools.pack import FILES, MANIFEST, write_archive
from tools.replay import in_order

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("one run replayed")]


def given(monkeypatch: pytest.MonkeyPatch, script: Any, *arguments: str) -> None:
    """A command as it is typed, which alone the run keeps."""
    monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *arguments])
    assert script.main() == 0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Search, derivation, retraining and comparison of the tiny experiment, packed."""
    folder = tmp_path_factory.mktemp("replay")
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


def test_a_run_is_made_again_byte_for_byte_by_processes_of_its_own(
    archive: Path, tmp_path: Path, capsys: Capture
) -> None:
    capsys.readouterr()
    assert code_of(replay, archive, "--run", tmp_path / "again") == 0
    out = capsys.readouterr().out
    assert "differs: " not in out
    assert re.search(r"again: of \d\d files equal, times excepted\n$", out)
    manifest = (tmp_path / "again" / FILES / MANIFEST).read_bytes()
    assert "retrain/argmax-0/seed-0/model/model.safetensors" in in_order(json.loads(manifest))


def test_another_setting_is_named_by_the_rows_that_it_changes(
    archive: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = list[str]()

    def run_here(arguments: Sequence[str], threads: str, stop: Any) -> int:
        verb = Path(arguments[0]).stem
        # The first time the third command ends as if it had been stopped.
        if verb == "retrain" and not stopped:
            stopped.append(verb)
            return 130
        return code_of(importlib.import_module(verb), *arguments[1:])

    monkeypatch.setattr("tools.replay._run", run_here)
    arguments = [archive, "--run", tmp_path / "again", "--set", "retrain.optimiser.lr=0.004"]
    assert code_of(replay, *arguments) == 130
    capsys.readouterr()
    assert code_of(replay, *arguments) == 1
    out = capsys.readouterr().out
    results = ("search/", "architecture.json", "architectures/", "retrain/")
    lines = [line for line in out.splitlines() if line.startswith(results)]
    phase = "retrain/argmax-0/seed-0"
    assert lines[0] == f"{phase}/identity.json"
    assert {f"{phase}/metrics.jsonl", f"{phase}/model/model.safetensors"} < set(lines)
    assert all(line.startswith("retrain/") for line in lines)
