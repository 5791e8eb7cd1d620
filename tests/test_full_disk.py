"""A full disk, at any write: one clear line, nothing half written, and the run goes on exactly."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import retrain
import search
from tests.disk import FullDisk
from tests.runs import LAYOUT, RETRAIN, ROOT, SEARCH, Capture, assert_same, code_of, run, settings

NO_FIGURES = settings("run.figures=false")


def goes_on_exactly(
    n: int, script: Any, experiment_file: Path, undisturbed: Path, capsys: Any, *options: str
) -> bool:
    """Full from the n-th change on, then with room; False where there are not so many changes."""
    folder = experiment_file.parent / f"disk-{n}"
    folder.mkdir()
    phase, more = (SEARCH, []) if script is search else (RETRAIN, LAYOUT)
    arguments = [experiment_file, "--run", folder / "run", *more, *options]
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


@pytest.mark.parametrize(("script", "n"), [(search, 7), (search, 150), (retrain, 102)])
def test_a_full_disk_is_one_line_and_the_run_goes_on_exactly(
    experiment_file: Path, undisturbed: Path, capsys: Any, script: Any, n: int
) -> None:
    assert goes_on_exactly(n, script, experiment_file, undisturbed, capsys)


def test_what_takes_its_name_lies_on_the_disk_before(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power failure may leave the name of a checkpoint, and nothing in it."""
    synced, named, fsync, replace = set[int](), list[str](), os.fsync, os.replace

    def noted(opened: int) -> None:
        synced.add(os.fstat(opened).st_ino)
        fsync(opened)

    def checked(old: Path, new: Path) -> None:
        for path in filter(Path.is_file, (old, *old.rglob("*"))):
            assert path.stat().st_ino in synced, path
        named.append(new.name)
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", checked)
    for script, more in ((search, NO_FIGURES), (retrain, LAYOUT)):
        run(script, experiment_file, "--run", tmp_path / "run", *more)
    assert {"last.safetensors", "model", "result.json", "pi.npz"} <= set(named)
    assert any(name.startswith("files-") for name in named)


# As many files as the whole phases write, in fewer steps.
FEWER = settings(
    *("search.steps=9", "retrain.steps=8", "run.log_every=2"),
    *("run.checkpoint_every=2", "run.validate_every=3"),
)


@pytest.mark.slow
@pytest.mark.parametrize("script", [search, retrain])
def test_a_full_disk_at_any_file_is_one_line_and_the_run_goes_on_exactly(
    experiment_file: Path, tmp_path: Path, capsys: Capture, script: Any
) -> None:
    whole, more = tmp_path / "run", [] if script is search else LAYOUT
    run(script, experiment_file, "--run", whole, *more, *FEWER)
    # A file takes up to five changes in a row (open, write, sync, rename, sync of the folder):
    # every fourth change meets each file, and from file to file each of the five.
    n = 1
    while goes_on_exactly(n, script, experiment_file, whole, capsys, *FEWER):
        n += 4
    assert n > 100


# What the system itself answers, in processes of their own.


@pytest.mark.slow
def test_a_full_disk_behind_standard_output_ends_in_one_line(
    experiment_file: Path, tmp_path: Path
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "search.py", experiment_file, "--run", tmp_path / "run", *NO_FIGURES],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, env=environment, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
