"""`--help` of a tool is its docstring with a real command, and is instant."""

import ast
import subprocess
import sys

import pytest

from tests.test_pipeline import ROOT

HEAVY = {"torch", "numpy", "pandas", "matplotlib", "optuna", "pydantic", "yaml", "tqdm"}


# What has no command line of its own, or is called by make alone.
NO_COMMANDS = {"__init__", "bootstrap"}
TOOLS = sorted({path.stem for path in (ROOT / "tools").glob("*.py")} - NO_COMMANDS)


@pytest.mark.parametrize("tool", TOOLS)
def test_help_shows_a_real_command_and_imports_nothing_heavy(tool: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / f"tools/{tool}.py").read_text()))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", f"tools.{tool}", "--help"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert docstring
    assert docstring in done.stdout
    assert f"    python -m tools.{tool} " in docstring
    assert f"usage: python -m tools.{tool} " in done.stdout
    assert ("[--run" in done.stdout) == (tool in {"confirm", "replay"})
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & HEAVY
