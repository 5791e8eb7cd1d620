"""Command lines: what is shown of them, which saved experiment they take, clumsy ones."""

import importlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import cli
from tests.runs import ROOT, Capture, refused


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("python", "python"),
        (".venv/bin/python", ".venv/bin/python"),
        ("HERE/.venv/bin/python", ".venv/bin/python"),
        ("/opt/venv/bin/python", "/opt/venv/bin/python"),
    ],
)
def test_a_command_on_the_screen_names_the_interpreter_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, shown: str
) -> None:
    """A plain `python` may be another one, without torch; in a file it is said all the same."""
    monkeypatch.chdir(tmp_path)
    here = str(Path.cwd())
    monkeypatch.setattr(sys, "orig_argv", [typed.replace("HERE", here)])
    for script in ("search.py", f"{here}/search.py"):
        monkeypatch.setattr(sys, "argv", [script, "x.yaml"])
        assert cli.resume_command() == f"{shown} search.py x.yaml"
        assert cli.command("derive.py", Path("runs/x")) == f"{shown} derive.py runs/x"
    for module in ("tools.latency", "benchmarks.headline"):
        monkeypatch.setattr(sys, "argv", [f"{here}/{module.replace('.', '/')}.py", "x.yaml"])
        assert cli.resume_command() == f"{shown} -m {module} x.yaml"


def test_a_sweep_takes_its_own_experiment_and_a_search_its_own(tmp_path: Path) -> None:
    of_search = tmp_path / "search/seed-0/experiment.yaml"
    of_sweep = tmp_path / "sweep/experiment.yaml"
    for path in (of_search, of_sweep):
        path.parent.mkdir(parents=True)
        path.touch()
    swept = cli.parser("", saved=cli.SAVED_OF_SWEEP).parse_args([str(tmp_path)])
    assert cli.locate(cli.parser("").parse_args([str(tmp_path)]))[0] == of_search
    assert cli.locate(swept)[0] == of_sweep
    of_sweep.unlink()
    assert cli.locate(swept)[0] == of_search


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("search tiny.yaml --run train.txt", "--run train.txt: train.txt is a file; give a dir"),
        ("tools.confirm tiny.yaml .", ".: a directory; give a YAML file"),
        ("sweep tiny.yaml --worker --retry-failed", "--retry-failed: give it where the sweep was"),
        # Before a text is read.
        ("retrain tiny.yaml --check --layout 'a d'", "--layout: 'a d' has 2 blocks, model"),
        ("derive tiny.yaml --method layout --set 'derive.layout=a d'",
         "derive.layout: 'a d' has 2 blocks, model.n_blocks is 4"),
        ("retrain tiny.yaml --layout adad --set data.validation_tokens=63",
         "data: 63 validation tokens are fewer than 4 segments of 16"),
        ("search tiny.yaml --set model.candidates=[attention]",
         "model.candidates: attention alone leaves a search no choice"),
        ("retrain tiny.yaml --layout interleavd", "a method (argmax, top_k, sampled, beam, "),
        ("search tiny.yaml --set run.device=cuda:99", "cuda:99 is not there"),
        ("search tiny.yaml --set data.tokenizer.kind=bpe --set data.tokenizer.vocabulary=30000",
         "30000 ids asked for"),
        ("search empty", "give a YAML file"),
        # Whichever text it is, before anything starts.
        ("search tiny.yaml --set data.files.train=latin.txt", "latin.txt: is not UTF-8, byte 3"),
        ("search tiny.yaml --set data.files.valid=none.txt", "none.txt: is empty"),
        ("derive tiny.yaml --run run", "pi.npz: not found; run search.py first, or take what was "
         "searched: seed-3, seed-7"),
    ],
)  # fmt: skip
def test_a_clumsy_use_is_one_line_and_code_2(
    experiment_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, command: str, said: str
) -> None:
    monkeypatch.chdir(experiment_file.parent)
    for seed in (3, 7):
        Path(f"run/search/seed-{seed}").mkdir(parents=True)
        Path(f"run/search/seed-{seed}/pi.npz").touch()
        Path(f"run/search/seed-{seed}/experiment.yaml").touch()
    Path("empty").mkdir()
    Path("latin.txt").write_bytes(b"abc\xff\xfe")
    Path("none.txt").touch()
    before = left_by_runs()
    script, *arguments = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *arguments])
    assert said in refused(importlib.import_module(script), capsys, *arguments)
    assert left_by_runs() == before


def left_by_runs() -> list[Path]:
    """Everything in this folder but the cache."""
    return sorted(path for path in Path().rglob("*") if path.parts[0] != "cache")


def test_closed_streams_are_the_null_device_from_the_start(tmp_path: Path) -> None:
    """No file gets the number of one, and what is printed goes nowhere."""
    script = f"""
import os, sys
from pipeline import cli
with cli.user_errors(loads=None):
    opened = os.open({str(tmp_path / "file")!r}, os.O_CREAT | os.O_WRONLY)
    assert opened > 2
    print("lost")
    raise ValueError("also lost")
"""
    closed = ["bash", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, script]
    assert subprocess.run(closed, cwd=ROOT, check=False).returncode == 2
    assert (tmp_path / "file").read_bytes() == b""
