"""A full disk, at any write: one clear line, nothing half written, and the run goes on exactly."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import retrain
import search
from tests.full_disk import FullDisk
from tests.runs import LAYOUT, RETRAIN, ROOT, SEARCH, assert_same, code_of, run


def full_at(n: int, script: Any, arguments: list[Any], folder: Path, capsys: Any) -> bool:
    """Run with a disk that is full from the n-th write on; whether it came to that."""
    capsys.readouterr()
    with FullDisk(folder, n).installed() as disk:
        code = code_of(script, *arguments)
    error = capsys.readouterr().err
    if not disk.was_full:
        assert code == 0
        return False
    assert code == 2, n
    assert "Traceback" not in error
    lines = [line for line in error.splitlines() if "No space left on device" in line]
    assert len(lines) == 1, (n, error)
    assert lines[0].startswith(str(folder)), lines[0]
    assert [path for path in folder.rglob(".*")] == [], n
    return True


def goes_on_exactly(
    n: int, script: Any, experiment_file: Path, undisturbed: Path, capsys: Any
) -> bool:
    """Full at the n-th write, then with room; False where there are not so many writes."""
    folder = experiment_file.parent / f"disk-{n}"
    folder.mkdir()
    arguments = [experiment_file, "--run", folder / "run"]
    arguments += LAYOUT if script is retrain else []
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARNAS_CACHE", str(folder / "cache"))
        if not full_at(n, script, arguments, folder, capsys):
            return False
        run(script, *arguments)
    phase = SEARCH if script is search else RETRAIN
    assert_same(undisturbed / phase, folder / "run" / phase)
    shutil.rmtree(folder)
    return True


@pytest.mark.parametrize(
    ("script", "n"), [(search, 7), (search, 75), (search, 150), (retrain, 130), (retrain, 165)]
)
def test_a_full_disk_is_one_line_and_the_run_goes_on_exactly(
    experiment_file: Path, undisturbed: Path, capsys: Any, script: Any, n: int
) -> None:
    assert goes_on_exactly(n, script, experiment_file, undisturbed, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("script", [search, retrain])
def test_a_full_disk_at_any_write_is_one_line_and_the_run_goes_on_exactly(
    experiment_file: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str], script: Any
) -> None:
    n = 1
    while goes_on_exactly(n, script, experiment_file, undisturbed, capsys):
        n += 1
    assert n > 100


def test_a_figure_that_finds_the_disk_full_loses_no_training(
    experiment_file: Path,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(folder: Path) -> list[Path]:
        raise OSError(28, "No space left on device", str(folder / "figures/pi.png"))

    arguments = [experiment_file, "--run", tmp_path / "run"]
    with monkeypatch.context() as patched:
        patched.setattr("report.search_figures.write_search_figures", full)
        assert code_of(search, *arguments) == 2
    error = capsys.readouterr().err
    assert "figures/pi.png: No space left on device" in error
    assert "Go on with:" in error
    run(search, *arguments)
    assert "goes on from" not in (tmp_path / "run" / SEARCH / "train.log").read_text()
    assert_same(undisturbed / SEARCH, tmp_path / "run" / SEARCH)


def test_tensorboard_that_finds_the_disk_full_is_one_line(
    experiment_file: Path,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its own thread writes, so the error comes with a later row or at the end."""

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            self.rows = 0

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            if step > 9:
                raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    module = type(sys)("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    arguments = [experiment_file, "--run", tmp_path / "run"]
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch.utils.tensorboard", module)
        assert code_of(search, *arguments, "--tensorboard") == 2
    assert "TensorBoard's event file: No space left on device" in capsys.readouterr().err
    run(search, *arguments)
    assert_same(undisturbed / SEARCH, tmp_path / "run" / SEARCH)


# What the system itself answers, in processes of their own.

SEARCH_ALONE = "import search, sys; sys.exit(search.main(sys.argv[1:]))"
LIMITED = """\
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = sys.argv[2:]
import search
sys.exit(search.main(sys.argv[1:]))
"""


def command(code: str, *arguments: Any, **more: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*more.pop("before", []), sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdout=more.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        **more,
    )


def test_files_that_may_not_grow_end_in_one_line(experiment_file: Path, tmp_path: Path) -> None:
    arguments = ["search.py", experiment_file, "--run", tmp_path / "run"]
    done = command(LIMITED, 20_000, *arguments)
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
        done = command(
            SEARCH_ALONE, experiment_file, "--run", tmp_path / "run", stdout=full, env=environment
        )
    assert done.returncode == 2, done.stderr
    assert "standard output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def as_one_who_may_not_all() -> list[str]:
    """What takes from root its right to open every file."""
    if os.getuid() != 0:
        return []
    prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"], check=False).returncode:
        pytest.skip("root may read everything here, and setpriv cannot take that away")
    return prefix


@pytest.mark.slow
@pytest.mark.parametrize(
    ("denied", "said"),
    [
        ("train.txt", "train.txt: may not be read (permissions)"),
        ("tiny.yaml", "tiny.yaml: Permission denied"),
        ("run", "run/search: Permission denied"),
        ("cache", "PARNAS_CACHE names another folder"),
        ("run/search/seed-0", "seed-0/lock: Permission denied"),
        ("run/search/seed-0/last.safetensors", "last.safetensors: Permission denied"),
    ],
)
def test_what_may_not_be_read_or_written_is_one_line(
    experiment_file: Path, tmp_path: Path, denied: str, said: str
) -> None:
    prefix = as_one_who_may_not_all()
    arguments = [experiment_file, "--run", tmp_path / "run"]
    if "seed-0" in denied:
        run(search, *arguments)
        (tmp_path / "run/search/seed-0/lock").unlink()
    for name in ("cache", "run"):
        (tmp_path / name).mkdir(exist_ok=True)
    path = tmp_path / denied
    path.chmod(0 if path.is_file() else 0o555)
    done = command(SEARCH_ALONE, *arguments, before=prefix)
    path.chmod(0o755)
    assert "Traceback" not in done.stderr
    if denied.endswith("last.safetensors"):
        assert done.returncode == 0, done.stderr
        assert f"the checkpoint before the last one ({said}" in done.stdout
    else:
        assert done.returncode == 2, done.stderr
        assert said in done.stderr


@pytest.mark.slow
def test_a_cache_that_has_everything_need_not_be_writable(
    experiment_file: Path, tmp_path: Path
) -> None:
    prefix = as_one_who_may_not_all()
    run(search, experiment_file, "--run", tmp_path / "one")
    for path in [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = command(SEARCH_ALONE, experiment_file, "--run", tmp_path / "two", before=prefix)
    for path in [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]:
        path.chmod(0o755)
    assert done.returncode == 0, done.stderr


WITHOUT_FIGURES = """\
import sys, shutil, search, report.page, report.search_figures
report.search_figures.write_search_figures = lambda folder: []
report.page.write_report = lambda folder: folder / 'report.html'
code = search.main(sys.argv[2:])
code or shutil.copytree(sys.argv[3 + 1], sys.argv[1], dirs_exist_ok=True)
sys.exit(code)
"""
MOUNTED = """\
set -e
mount -t tmpfs -o size={size} none {folder}
for i in 1 2 3; do
  if {command} 2> {errors}; then exit 0; else code=$?; fi
  cat {errors} >&2
  test $code = 2 || exit 9
  test -z "$(find {folder} -name '.*')" || exit 8
  mount -o remount,size=64m {folder}
done
exit 7
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "24k", "100k", "250k", "400k"])
def test_a_disk_of_a_few_pages_is_survived(
    experiment_file: Path, undisturbed: Path, tmp_path: Path, size: str
) -> None:
    """On a real full disk; the folder is looked at inside, where it is mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = [sys.executable, "-c", WITHOUT_FIGURES, str(tmp_path / "copy"), str(experiment_file)]
    words += ["--run", str(folder / "run")]
    script = MOUNTED.format(
        size=size, folder=folder, errors=tmp_path / "errors", command=shlex.join(words)
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
