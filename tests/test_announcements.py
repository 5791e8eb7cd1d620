"""What takes long is named before it begins, and what was said is not said again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import cli
from tests.runs import ROOT, Capture

QUICKSTART = "configs/quickstart.yaml"


WITHOUT_TORCH = """
import importlib, importlib.abc, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch":
            raise ModuleNotFoundError("none", name=name)

sys.meta_path.insert(0, Refuse())
for verb, *arguments in json.loads(sys.argv[1]):
    try:
        code = importlib.import_module(verb).main(arguments)
    except SystemExit as end:
        code = end.code
    print(code, file=sys.stderr)
"""


def without_torch(*commands: list[str]) -> list[tuple[str, int]]:
    """What commands say on stderr, and their exit codes, where torch cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, json.dumps(commands)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said, endings = list[str](), list[tuple[str, int]]()
    for line in done.stderr.splitlines():
        if line.isdecimal():
            endings.append(("\n".join(said), int(line)))
            said = []
        else:
            said.append(line)
    return endings


def test_the_import_of_torch_is_announced_before_it_begins(tmp_path: Path) -> None:
    """Where torch cannot be imported, the announcement is there all the same, and first."""
    ((said, code),) = without_torch(["search", QUICKSTART, "--run", str(tmp_path)])
    remedy = "run `make setup`, then use .venv/bin/python"
    assert (said, code) == (f"loading torch\nthe package torch is missing: {remedy}", 2)


def test_a_check_needs_no_torch() -> None:
    commands = [
        [verb, QUICKSTART, "--check"] for verb in ("search", "derive", "retrain", "compare")
    ]
    commands.append(["sweep", "configs/sweep_quick.yaml", "--check"])
    assert without_torch(*commands) == [("", 0)] * len(commands)


def test_what_is_missing_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    """No text, no run, no such layout or model folder."""
    run = tmp_path / "run"
    texts = "{train: no.txt, valid: no.txt, test: no.txt}"
    own = ["--set", "data.corpus=files", "--set", f"data.files={texts}"]
    expected = {
        ("search", QUICKSTART, *own): "--set data.files",
        ("tools.pack", str(run)): f"{run}: no run directory",
        ("compare", str(tmp_path / "none")): f"{tmp_path}/none: no such file or run folder; give",
        ("retrain", QUICKSTART, "--layout", "aaxd"): "--layout: position 3: 'x' is none of a",
        ("tools.generate", str(run)): f"{run}: not a model folder",
        ("tools.evaluate", str(run), "--data", "README.md"): f"{run}: not a model folder",
        ("tools.export", str(run), "--to", "torch", str(tmp_path / "x")): f"{run}: not a model",
    }
    for (said, code), words in zip(
        without_torch(*map(list, expected)), expected.values(), strict=True
    ):
        assert said.startswith(words), said
        assert code == 2


def test_one_process_of_several_announces_and_all_end_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """At the interpreter's own end gloo now and then aborted a training that was done."""
    ended = list[int]()
    monkeypatch.setattr("os._exit", ended.append)
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    for rank, said in (("0", "loading nothing_of_that_name\n"), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        with cli.user_errors(loads="nothing_of_that_name"):
            pass
        assert capsys.readouterr().err == said
    assert ended == [0, 0]
