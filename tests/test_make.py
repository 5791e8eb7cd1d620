"""`make` alone lists the commands and does nothing else."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def test_make_alone_lists_every_command_and_makes_nothing(tmp_path: Path) -> None:
    commands = [path for pattern in ("*.py", "tools/*.py") for path in sorted(ROOT.glob(pattern))]
    for path in (ROOT / "Makefile", *commands):
        (tmp_path / path.relative_to(ROOT)).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, tmp_path / path.relative_to(ROOT))
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        ["make", "PYTHON=false"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    listed = dict(
        re.split(r"  +", line, maxsplit=1) for line in done.stdout.splitlines() if "  " in line
    )
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tools = [path.stem for path in commands if path.parent.name == "tools"]
    tools = [name for name in tools if name not in ("__init__", "bootstrap", "build_backend")]
    scripts = ["search.py", "derive.py", "retrain.py", "compare.py", "sweep.py"]
    assert list(listed) == [
        *(f"make {target}" for target in targets.split()),
        *(f"python {script}" for script in scripts),
        *(f"python -m tools.{name}" for name in tools),
    ]
    assert all(len(words) > 7 for words in listed.values())
