"""`--help` of a script or tool is its docstring with a real command, and is instant."""

import ast
import subprocess
import sys

import pytest

from tests.runs import ROOT

HEAVY = {"torch", "numpy", "pandas", "matplotlib", "optuna", "pydantic", "yaml", "tqdm"}
# What has no command line of its own, or is called by make alone.
NO_COMMANDS = {"tools.__init__", "tools.bootstrap", "conftest"}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for pattern in ("*.py", "tools/*.py")
    for path in ROOT.glob(pattern)
}


@pytest.mark.parametrize("module", sorted(MODULES - NO_COMMANDS))
def test_help_shows_a_real_command_and_imports_nothing_heavy(module: str) -> None:
    path = f"{module.replace('.', '/')}.py"
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text()))
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", module, "--help"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert docstring
    assert docstring in done.stdout
    called = f"python -m {module} " if module.startswith("tools.") else f"python {path} "
    assert called in docstring
    if module.startswith("tools."):
        assert f"usage: {called}" in done.stdout
        assert ("[--run" in done.stdout) == (module == "tools.confirm")
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & HEAVY
