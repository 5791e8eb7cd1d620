"""docs/adding_a_block.md, followed to the letter in a copy of the repository."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs import ROOT
from tests.test_docs import blocks

PAGE = ROOT / "docs/adding_a_block.md"
NOT_COPIED = shutil.ignore_patterns(
    ".*", "__pycache__", "runs", "site", "results", "figures", "*.egg-info"
)


def named_file(after: str) -> str:
    """The file that a line of the page names before its content: "`path`:"."""
    text = PAGE.read_text(encoding="utf-8")
    names = re.findall(rf"`([\w/]+\.{after})`:$", text, re.MULTILINE)
    assert len(names) == 1, names
    return str(names[0])


def apply_diff(text: str, diff: str) -> str:
    """The text with a hunk's added lines; its other lines must stand there as they are."""
    before = "".join(line[1:] for line in diff.splitlines(True) if line[0] == " ")
    after = "".join(line[1:] for line in diff.splitlines(True))
    assert text.count(before) == 1, f"the file has no lines\n{before}"
    return text.replace(before, after)


def run(folder: Path, command: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_page_followed_to_the_letter_adds_a_block(tmp_path: Path) -> None:
    copy = tmp_path / "parnas"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)

    (copy / named_file("py")).write_text(blocks(PAGE, "python")[0], encoding="utf-8")
    (copy / named_file("yaml")).write_text(blocks(PAGE, "yaml")[0], encoding="utf-8")
    files = ("options", "__init__", "__init__")
    for name, diff in zip(files, blocks(PAGE, "diff"), strict=True):
        file = copy / f"model/blocks/{name}.py"
        file.write_text(apply_diff(file.read_text(encoding="utf-8"), diff))

    commands = [shlex.split(line) for block in blocks(PAGE, "") for line in block.splitlines()]
    assert {command[0] for command in commands} == {"make", "python"}
    for command in commands:
        if command[0] == "make":
            # No environment is made anew: this interpreter, and `.venv/.ok` taken as it is.
            options = ["-o", ".venv/.ok", f"BIN={sys.executable}"]
            run(copy, [*command[:1], *options, *command[1:]])
        else:
            quiet = ["-p", "no:cacheprovider"] if "pytest" in command else []
            run(copy, [sys.executable, *command[1:], *quiet])

    assert "gate_bias" in (copy / "docs/options.md").read_text(encoding="utf-8")
    model = copy / "runs/gate/retrain"
    assert [path.name for path in model.glob("*/seed-0/model/model.safetensors")]
    for name in ("search.py", "tools/corpus.py"):
        assert (copy / name).read_bytes() == (ROOT / name).read_bytes()
