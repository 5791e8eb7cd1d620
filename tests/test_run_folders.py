"""What is not of Parnas is never changed or removed, whatever folder a command is told to write."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import derive
import retrain
import search
import sweep
from pipeline.cli import check_run
from pipeline.run_files import remove_weights
from tests.runs import Capture, refused, run, run_jobs_here, settings

VERBS = {
    "search": [],
    "derive": ["--method", "interleaved"],
    "retrain": ["--layout", "a d a d"],
    "compare": [],
    "sweep": settings("sweep={trials: 1, space: {search.tau.start: {low: 0.5, high: 1.0}}}"),
}

SHORT = settings("retrain.steps=2", "retrain.optimiser.warmup_steps=1")


def with_files(*names: str, run: str = "mine") -> Callable[[], str]:
    def make() -> str:
        for name in names:
            path = Path("mine") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"mine: {name}")
        return run

    return make


def link() -> str:
    with_files("notes.txt")()
    Path("link").symlink_to("mine")
    return "link"


# No run folder among them; each makes what it is, and says what is given for --run.
ODD: dict[str, Callable[[], str]] = {
    "current": lambda: ".",
    "unset variable": lambda: "",
    "around and back": lambda: f"../{Path.cwd().name}",
    "above": lambda: "..",
    "repository": with_files(".git/HEAD"),
    "clone that a search wrote to": with_files(".git/HEAD", "search/seed-0/experiment.yaml"),
    "package called model": with_files("model/__init__.py"),
    "model of another program": with_files("model/model.safetensors"),
    "best.yaml": with_files("best.yaml", "report.html"),
    "text": with_files("train.txt", "valid.txt"),
    "deep and hidden": with_files("a/b/c/.envrc"),
    "search of another program": with_files("search/results/experiment.yaml"),
    "link": link,
    "names that begin as ours": with_files("shrink_notes.md", "report.html"),
    "seeds of another program": with_files("exp/seed-1/experiment.yaml", "report.html"),
    "phase of a run": with_files(
        "seed-0/identity.json", "seed-0/experiment.yaml", run="mine/seed-0"
    ),
    "searches of a run": with_files("seed-0/identity.json", "seed-0/experiment.yaml"),
    "file": with_files("file", run="mine/file"),
    "below a file": with_files("file", run="mine/file/run"),
}


def files() -> dict[Path, tuple[bytes, int]]:
    """Every file here but the cache, and when it was written; links as they stand."""
    paths = (path for path in sorted(Path().rglob("*")) if path.parts[0] != "cache")
    return {
        path: (b"link" if path.is_symlink() else path.read_bytes(), path.lstat().st_mtime_ns)
        for path in paths
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
def here(experiment_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a tiny experiment, which is the current one."""
    monkeypatch.chdir(experiment_file.parent)
    return experiment_file.parent


@pytest.mark.parametrize(
    ("odd", "verb"), [*((odd, "search") for odd in ODD), *(("text", verb) for verb in VERBS)]
)
def test_what_is_no_run_folder_is_refused_and_stays(
    here: Path, capsys: Capture, odd: str, verb: str
) -> None:
    run_dir = ODD[odd]()
    before = files()
    script = importlib.import_module(verb)
    line = refused(script, capsys, "tiny.yaml", "--run", run_dir, *VERBS[verb])
    assert line.startswith(f"--run {Path(run_dir)}: ")
    assert files() == before


def test_a_command_stopped_at_its_very_start_can_start_again(here: Path) -> None:
    left = with_files(
        "search/seed-0/lock", "a/seed-0/job.lock", "search/seed-0/.experiment.yaml.7.tmp"
    )()
    run(derive, "tiny.yaml", "--method", "interleaved", "--run", left)


def test_weights_of_the_user_stay_where_those_of_a_training_go(tmp_path: Path) -> None:
    folder = tmp_path / "retrain/a/seed-0"
    ours = ["best-3.safetensors", "last.safetensors", "model/model.safetensors"]
    own = ["mine.safetensors", "best.safetensors", "../seed-1/model/mine.safetensors"]
    for name in ["identity.json", "../seed-1/identity.json", *ours, *own]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    remove_weights(tmp_path)
    assert [name for name in [*ours, *own] if (folder / name).exists()] == own


@pytest.mark.parametrize(
    ("name", "linked"),
    [("__init__.py", True), ("model.safetensors.old", False), ("notes/why.md", False)],
)
def test_a_folder_called_model_in_a_run_stays(
    here: Path, capsys: Capture, name: str, linked: bool
) -> None:
    run(derive, "tiny.yaml", "--method", "interleaved")
    run(retrain, "tiny.yaml", *SHORT)
    own = Path("elsewhere" if linked else "runs/tiny/model") / name
    for path in Path("runs/tiny/model").iterdir():
        path.unlink()
    if linked:
        Path("runs/tiny/model").rmdir()
        own.parent.mkdir(parents=True)
        Path("runs/tiny/model").symlink_to(Path("elsewhere").resolve())
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("mine")
    why = "is no folder" if linked else f"holds {Path(name).parts[0]}, which is not of Parnas"
    line = refused(retrain, capsys, "tiny.yaml", *SHORT)
    assert line.startswith(f"runs/tiny/model: {why}, so it is not replaced; move it away")
    assert own.read_text() == "mine"
    assert list(own.parent.iterdir()) == [own]


@pytest.mark.parametrize("name", ["best.yaml", "pareto/0003.yaml"])
def test_a_sweep_removes_no_experiment_of_the_user(here: Path, capsys: Capture, name: str) -> None:
    path = Path("runs/tiny") / name
    Path("runs/tiny/sweep").mkdir(parents=True)
    Path("runs/tiny/sweep/experiment.yaml").touch()
    path.parent.mkdir(exist_ok=True)
    path.write_text("run: {seed: 3}\n")
    before = files()
    assert f"{path}: no sweep wrote it" in refused(sweep, capsys, "tiny.yaml", *VERBS["sweep"])
    assert files() == before


@contextmanager
def looked_at_after_every_write(folder: Path) -> Iterator[None]:
    """Whatever was written last before a kill, the folder can be given again."""

    def looking(replace: Any) -> Any:
        def replaced(*arguments: Any, **options: Any) -> None:
            replace(*arguments, **options)
            check_run(folder)

        return replaced

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "replace", looking(os.replace))
        yield


def test_a_command_that_was_killed_at_any_write_takes_its_folder_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.layout_scores.run_all", run_jobs_here)
    one = settings("derive.trainings.best=1", "derive.trainings.seeds=1")
    with looked_at_after_every_write(Path("runs/tiny")):
        run(derive, "tiny.yaml", "--method", "trained", *SHORT, *one)
    for verb, options in (("search", []), ("retrain", VERBS["retrain"])):
        with looked_at_after_every_write(Path("runs", verb)):
            run(importlib.import_module(verb), "tiny.yaml", "--run", f"runs/{verb}", *options)
    run(search, "runs/search")
