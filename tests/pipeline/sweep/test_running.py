"""Starting and joining a sweep: what is written when, and what is refused."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage

import sweep as sweep_script
from hpo.queue import Queue
from pipeline.experiment import load_experiment
from pipeline.sweep import run, study
from pipeline.sweep.plan import SweepPaths
from pipeline.sweep.pool import Pool
from pipeline.sweep.run import STORAGE, SweepRun, join_sweep, start_sweep
from tests.data.models import given_model
from tests.sweeping import ROOT, add_sweep
from training.endings import Stopped
from utils.files import read_object

URL = "postgresql://u:secret@h:5/d"
AWAY = OSError(110, "Connection timed out")


@pytest.fixture
def file(experiment_file: Path) -> Path:
    return add_sweep(experiment_file, trials=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The storages that were opened; all are one in memory."""
    found: list[str] = []
    storage = InMemoryStorage()

    def opened(where: str, journal: Path, **more: object) -> BaseStorage:
        found.append(where)
        return storage

    monkeypatch.setattr(study, "open_storage", opened)
    return found


def start(file: Path, folder: Path, *settings: str) -> SweepRun:
    experiment = load_experiment(file, settings)
    return start_sweep(experiment, folder, 2, retry_failed=False)


def join(file: Path, folder: Path, *settings: str, workers: int = 1) -> SweepRun:
    return join_sweep(load_experiment(file, settings), folder, workers)


def release(started: SweepRun) -> None:
    assert started.lock is not None
    started.lock.release()


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_wrong_url_claims_nothing_and_a_corrected_space_is_taken(
    file: Path, folder: Path
) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ValueError, match=r"^sweep\.storage: cannot reach"):
        start(file, folder, "sweep.storage=postgresql://u:secret@127.0.0.1:1/d")
    own = SweepPaths(folder).own
    assert not (own / "identity.json").exists()
    started = start(file, folder, "sweep.space={model.slots: {low: 2, high: 3}}")
    assert len(started.pool.queue.entries()) == 4
    assert read_object(own / "identity.json", "")["sweep"]["space"].keys() == {"model.slots"}


def test_nothing_of_another_sweep_is_changed(file: Path, folder: Path) -> None:
    release(start(file, folder))
    before = files(folder)
    with pytest.raises(ValueError, match="holds another experiment"):
        start(file, folder, "search.steps=31")
    (SweepPaths(folder).own / "identity.json").unlink()
    with pytest.raises(ValueError, match="is that of another experiment or space"):
        start(file, folder, "search.steps=31")
    SweepPaths(folder).trials.mkdir()
    with pytest.raises(ValueError, match="trials of another sweep"):
        start(file, folder)
    after = files(folder)
    # Optuna notes there that somebody asked for the study.
    journal = SweepPaths(folder).journal
    assert after.pop(journal).startswith(before.pop(journal))
    before.pop(SweepPaths(folder).own / "identity.json")
    assert after == before


SAMPLED, SWEPT = "derive.method=sampled", "sweep.space={derive.method: {choices: [top_k, sampled]}}"


@pytest.mark.parametrize(
    ("seeds", "setting", "is_refused"),
    [
        ("[0, 1]", SAMPLED, True),
        ("[0, 1]", SWEPT, True),
        ("[0, 1]", "sweep.set={derive.method: random}", True),
        ("[0, 1]", "derive.method=top_k", False),
        ("[0]", SAMPLED, False),
    ],
)
def test_no_sweep_is_gone_on_with_whose_seeds_derived_alike(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, seeds: str, setting: str,
    is_refused: bool,
) -> None:  # fmt: skip
    settings = [f"sweep.seeds={seeds}", setting]
    with monkeypatch.context() as before:
        before.setattr(study, "_derives_by_seed", lambda sweep: False)
        release(start(file, folder, *settings))
    if not is_refused:
        release(start(file, folder, *settings))
        return
    said = "derivations is not given there and anew with each of sweep.seeds here"
    with pytest.raises(ValueError, match=f"holds another experiment .{said}"):
        start(file, folder, *settings)
    with pytest.raises(ValueError, match="is that of another experiment or space"):
        join(file, folder, *settings)


def test_a_second_start_is_refused_before_it_writes(file: Path, folder: Path) -> None:
    own = SweepPaths(folder).own
    own.mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path; from training.run_dir import FolderLock;"
        "lock = FolderLock(Path(sys.argv[1])); print('has it', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(own)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "has it\n"
        with pytest.raises(ValueError, match="another process is training here"):
            start(file, folder)
        first.communicate()
    assert [path.name for path in own.iterdir()] == ["lock"]


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_password_is_written_nowhere_and_no_child_is_handed_it(
    file: Path,
    folder: Path,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    by_environment: bool,
) -> None:
    settings = [f"sweep.storage={URL}"]
    if by_environment:
        settings = ["sweep.storage=postgresql://u@h:5/d"]
        monkeypatch.setenv(STORAGE, URL)
    started = start(file, folder, *settings, "sweep.trials=5")
    assert STORAGE not in os.environ
    assert started.pool.sweep.config.storage == URL
    own = SweepPaths(folder).own_experiment
    experiment = load_experiment(own)
    assert experiment.sweep is not None
    assert (experiment.sweep.storage, experiment.sweep.trials) == ("postgresql://u@h:5/d", 5)
    if by_environment:
        monkeypatch.setenv(STORAGE, URL)
    joined = join(own if by_environment else file, folder, *settings, workers=3)
    assert joined.pool.sweep.config.storage == URL
    assert STORAGE not in os.environ
    assert asked == [URL, URL]
    assert not [path for path, text in files(folder).items() if b"secret" in text]
    join(file, folder, "sweep.storage=grpc://h:7")
    assert asked[-1] == "grpc://h:7"


@pytest.mark.usefixtures("asked")
def test_who_has_started_a_sweep_writes_its_results_also_when_it_is_stopped(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, bool]] = []
    sweeps = {"started": start(file, folder), "joined": join(file, folder, workers=2)}
    for name, run_of in sweeps.items():
        monkeypatch.setattr(
            run, "finish", lambda *rest, done, name=name: written.append((name, done))
        )
        monkeypatch.setattr(Pool, "run", lambda pool: None)
        run_of.run()
        run_of.finish()
        for error in (Stopped(15), ValueError("6 errors")):
            monkeypatch.setattr(Pool, "run", fails(error))
            with pytest.raises(type(error)):
                run_of.run()
    assert written == [("started", True), ("started", False), ("started", False)]


def fails(error: Exception) -> Callable[..., Any]:
    def call(*arguments: object, **more: object) -> Any:
        raise error

    return call


@pytest.mark.parametrize("error", [AWAY, RuntimeError("a mistake of ours")])
@pytest.mark.usefixtures("asked")
def test_a_storage_that_is_gone_is_one_line_and_no_other_error_is(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    started, joined = start(file, folder, f"sweep.storage={URL}"), join(file, folder)
    monkeypatch.setattr(Pool, "run", fails(error))
    monkeypatch.setattr(run, "finish", fails(error))
    calls = [started.run, started.finish, joined.run]
    monkeypatch.setattr(Queue, "fill", fails(error))
    calls.append(lambda: start(file, folder, f"sweep.storage={URL}") and None)
    for call in calls:
        with pytest.raises(ValueError if error is AWAY else RuntimeError) as caught:
            call()
        said = str(caught.value)
        if error is AWAY:
            assert said.startswith("sweep.storage: ")
            assert "the study and the trials' checkpoints stay as they are" in said
            assert "\n" not in said
            assert "secret" not in said


@pytest.mark.usefixtures("asked")
def test_nobody_joins_before_the_queue_is_full(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = Queue.fill

    def half(queue: Queue, points: list[Any]) -> None:
        fill(queue, points[:2])
        with pytest.raises(ValueError, match="no sweep run there yet"):
            join(file, folder)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Queue, "fill", half)
        with pytest.raises(KeyboardInterrupt):
            start(file, folder)
    # Half a queue is not another experiment's to go on with.
    with pytest.raises(ValueError, match="is that of another experiment or space"):
        start(file, folder, "search.steps=31")
    start(file, folder)
    assert len(join(file, folder).pool.queue.entries()) == 4
    assert len(start(file, folder, "sweep.trials=6").pool.queue.entries()) == 6


def test_a_study_has_one_id_for_ever_and_another_study_another(file: Path, tmp_path: Path) -> None:
    first, again = (start(file, tmp_path / "a").pool.queue.study_id for _ in range(2))
    other = start(file, tmp_path / "b").pool.queue.study_id
    assert first == again != other
    assert len(first) == len(other) == 16


def test_the_pruner_counts_the_validations_of_trials(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the file may set apart from its own."""
    intervals = []

    def pruner(config: object, validate_every: int) -> optuna.pruners.BasePruner:
        intervals.append(validate_every)
        return optuna.pruners.NopPruner()

    monkeypatch.setattr(study, "make_pruner", pruner)
    start(file, folder, "sweep.set={run.validate_every: 7}")
    assert intervals == [7]


def test_a_sweep_whose_folder_was_renamed_goes_on(file: Path, tmp_path: Path) -> None:
    first = start(file, tmp_path / "a").pool.queue.study_id
    (tmp_path / "a/trials").mkdir()
    (tmp_path / "a").rename(tmp_path / "b")
    assert start(file, tmp_path / "b").pool.queue.study_id == first
    assert join(file, tmp_path / "b").pool.queue.study_id == first


def test_a_sweep_whose_study_is_gone_does_not_begin_anew(file: Path, folder: Path) -> None:
    """It would move the folders of finished trials aside and run them again."""
    start(file, folder)
    (folder / "trials").mkdir()
    (folder / "sweep/study.journal").unlink()
    with pytest.raises(ValueError, match="no study run, though"):
        start(file, folder)


@pytest.mark.parametrize("directions", [1, 2])
def test_a_study_of_somebody_else_is_not_taken_over(
    file: Path, folder: Path, asked: list[str], directions: int
) -> None:
    storage = study.open_storage("", folder, create=True)
    theirs = optuna.create_study(
        study_name="run", storage=storage, directions=["minimize"] * directions
    )
    if directions == 1:
        theirs.enqueue_trial({"x": 1})
    with pytest.raises(ValueError, match="study run: is that of another experiment or space"):
        start(file, folder)
    assert theirs.user_attrs == {}


def test_a_file_without_a_sweep_is_refused_also_by_check(
    experiment_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--check"]):
        with pytest.raises(SystemExit) as ended:
            sweep_script.main([str(experiment_file), *more])
        assert ended.value.code == 2
        assert f"{experiment_file}: sweep: missing" in capsys.readouterr().err


LOWER = "{kind: bpe, vocabulary: 300, lower_case: true}"


@pytest.mark.parametrize(
    "settings",
    [
        [f"data.tokenizer={LOWER}"],
        [f"sweep.set={{data.tokenizer: {LOWER}}}"],
        [f"sweep.space={{data.tokenizer: {{choices: [{{kind: bytes}}, {LOWER}]}}}}"],
        [
            "data.tokenizer={kind: bpe, vocabulary: 300}",
            "sweep.space={data.tokenizer.lower_case: {choices: [false, true]}}",
        ],
        ["sweep.set={data.tokenizer: {kind: given, model: FOLDER/lossy.model}}"],
    ],
)
def test_a_tokenizer_that_loses_text_is_refused_before_the_first_trial(
    file: Path, folder: Path, tmp_path: Path, asked: list[str], settings: list[str]
) -> None:
    (tmp_path / "lossy.model").write_bytes(given_model())
    settings = [setting.replace("FOLDER", str(tmp_path)) for setting in settings]
    with pytest.raises(ValueError, match=r"data\.tokenizer: with .* no bits per byte.*lossless"):
        start(file, folder, *settings)
    assert not folder.exists()
    assert asked == []


def test_the_tokenizer_of_the_trials_decides_and_not_the_file_s(
    file: Path, folder: Path, asked: list[str]
) -> None:
    start(file, folder, f"data.tokenizer={LOWER}", "sweep.set={data.tokenizer: {kind: bytes}}")
    assert asked


def test_threads_that_workers_would_share_are_warned_of(
    file: Path,
    folder: Path,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "usable_cores", lambda: 2)
    release(start(file, folder, "run.threads=1"))
    assert "warning" not in capsys.readouterr().out
    release(start(file, folder, "run.threads=2"))
    assert "warning: 2 x 2 threads for 2 cores" in capsys.readouterr().out
    join(file, folder, "run.threads=3", workers=4)
    assert "warning: 4 x 3 threads for 2 cores" in capsys.readouterr().out
