"""What takes long is named before it begins, and what was said is not said again."""

import subprocess
import sys

import pytest

from pipeline import cli
from tests.runs import ROOT, Capture


def test_the_import_of_torch_is_announced_before_it_begins() -> None:
    """Where torch cannot be imported, the announcement is there all the same, and first."""
    code = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError('none', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import search; search.main(['x.yaml'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first == "loading torch"
    remedy = "run `make setup`, then use .venv/bin/python"
    assert second == f"the package torch is missing: {remedy}"


def test_one_process_of_several_announces(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    for rank, said in (("0", "loading nothing_of_that_name\n"), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        with cli.user_errors(loads="nothing_of_that_name"):
            pass
        assert capsys.readouterr().err == said
