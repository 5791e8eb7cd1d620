"""A full disk, at any write: one clear line, nothing half written, and the run goes on exactly."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import retrain
import search
from tests.disk import FullDisk
from tests.runs import LAYOUT, RETRAIN, ROOT, SEARCH, Capture, assert_same, code_of, run, settings


def goes_on_exactly(
    n: int, script: Any, experiment_file: Path, undisturbed: Path, capsys: Any
) -> bool:
    """Full from the n-th change on, then with room; False where there are not so many changes."""
    folder = experiment_file.parent / f"disk-{n}"
    folder.mkdir()
    phase, more = (SEARCH, []) if script is search else (RETRAIN, LAYOUT)
    arguments = [experiment_file, "--run", folder / "run", *more]
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patched:
        # A retraining finds the text as the search before it has prepared it.
        cache = folder if script is search else undisturbed.parent
        patched.setenv("PARNAS_CACHE", str(cache / "cache"))
        with FullDisk(folder, n).installed() as disk:
            code = code_of(script, *arguments)
        if not disk.failed:
            assert code == 0
            return False
        assert code == 2, n
        error = capsys.readouterr().err
        assert "Traceback" not in error
        lines = [line for line in error.splitlines() if "No space left on device" in line]
        assert len(lines) == 1, (n, error)
        assert lines[0].startswith(str(folder)), lines[0]
        assert [path for path in folder.rglob(".*")] == [], n
        run(script, *arguments)
    assert_same(undisturbed / phase, folder / "run" / phase)
    shutil.rmtree(folder)
    return True


@pytest.mark.parametrize(
    ("script", "n"), [(search, 7), (search, 75), (search, 150), (retrain, 102), (retrain, 137)]
)
def test_a_full_disk_is_one_line_and_the_run_goes_on_exactly(
    experiment_file: Path, undisturbed: Path, capsys: Any, script: Any, n: int
) -> None:
    assert goes_on_exactly(n, script, experiment_file, undisturbed, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("script", [search, retrain])
def test_a_full_disk_at_any_file_is_one_line_and_the_run_goes_on_exactly(
    experiment_file: Path, undisturbed: Path, capsys: Capture, script: Any
) -> None:
    # A file takes up to five changes in a row (open, write, sync, rename, sync of the folder):
    # every fourth change meets each file, and from file to file each of the five.
    n = 1
    while goes_on_exactly(n, script, experiment_file, undisturbed, capsys):
        n += 4
    assert n > 100


# What the system itself answers, in processes of their own.

NO_FIGURES = settings("run.figures=false")


def search_alone(*arguments: Any, before: Sequence[str] = (), **more: Any) -> Any:
    """search.py as a process, with its exit code and what it says."""
    command = [*before, sys.executable, "search.py", *map(str, arguments), *NO_FIGURES]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.run(command, cwd=ROOT, text=True, check=False, **streams)


def test_files_that_may_not_grow_end_in_one_line(experiment_file: Path, tmp_path: Path) -> None:
    at_most_20_kb = ["sh", "-c", 'ulimit -f 40; exec "$@"', "sh"]
    done = search_alone(experiment_file, "--run", tmp_path / "run", before=at_most_20_kb)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "last.safetensors: File too large" in done.stderr
    assert not list((tmp_path / "run").rglob(".*"))
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_a_full_disk_behind_standard_output_ends_in_one_line(
    experiment_file: Path, tmp_path: Path
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = search_alone(
            experiment_file, "--run", tmp_path / "run", stdout=full, env=environment
        )
    assert done.returncode == 2, done.stderr
    assert "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


MOUNTED = """\
set -e
mount -t tmpfs -o size={size} none {folder}
for i in 1 2 3; do
  if {command} 2> {errors}; then cp -r {folder}/run {copy}; exit 0; else code=$?; fi
  cat {errors} >&2
  test $code = 2 || exit 9
  test -z "$(find {folder} -name '.*')" || exit 8
  mount -o remount,size=64m {folder}
done
exit 7
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "100k", "400k"])
def test_a_disk_of_a_few_pages_is_survived(
    experiment_file: Path, undisturbed: Path, tmp_path: Path, size: str
) -> None:
    """On a real full disk; the folder is looked at inside, where it is mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = [sys.executable, "search.py", experiment_file, "--run", folder / "run", *NO_FIGURES]
    script = MOUNTED.format(
        size=size,
        folder=folder,
        errors=tmp_path / "errors",
        copy=tmp_path / "copy",
        command=shlex.join(map(str, words)),
    )
    environment = {**os.environ, "PARNAS_CACHE": str(folder / "cache")}
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("this user may not mount a disk of its own")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
    assert_same(undisturbed / SEARCH, tmp_path / "copy" / SEARCH)
