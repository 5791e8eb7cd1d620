"""pip installs Parnas in place or not at all: a wheel would hold no code."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="77")

ROOT = Path(__file__).resolve().parents[2]
# As pip calls a hook of the backend that pyproject.toml names.
HOOK = """
import importlib, sys, tomllib
build = tomllib.load(open("pyproject.toml", "rb"))["build-system"]
sys.path[:0] = build.get("backend-path", [])
print(getattr(importlib.import_module(build["build-backend"]), sys.argv[1])(*sys.argv[2:]))
"""


def called(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """What a hook answers in a copy of the repository without its packages."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "tools"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    command = [sys.executable, "-c", HOOK, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "build_wheel", "build_sdist"])
def test_a_wheel_is_refused_in_one_line_that_says_what_to_do(tmp_path: Path, hook: str) -> None:
    done = called(tmp_path, hook, ".")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be installed: clone the repository, run `make setup` there" in done.stderr
    assert not list(tmp_path.glob("*.whl"))


def test_an_install_in_place_brings_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    done = called(tmp_path, "prepare_metadata_for_build_editable", "metadata")
    assert done.returncode == 0, done.stderr
    (metadata,) = (tmp_path / "metadata").glob("parnas-*.dist-info/METADATA")
    said = metadata.read_text(encoding="utf-8")
    assert "Requires-Dist: torch<2.14,>=2.11" in said
    assert 'Requires-Dist: pytest<9.2,>=8.3; extra == "dev"' in said
