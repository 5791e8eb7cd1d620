"""Starting and joining a sweep: what is written when, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage

import sweep as sweep_script
from hpo.study import entries
from pipeline.devices import share_of_gpus
from pipeline.experiment import load_experiment
from pipeline.sweep import run, study, worker
from pipeline.sweep.plan import SweepPaths
from pipeline.sweep.run import STORAGE, SweepRun, join_sweep, start_sweep
from pipeline.sweep.worker import share_of_threads
from tests.data.models import given_model
from tests.sweeping import ROOT, add_sweep

URL = "postgresql://u:secret@h:5/d"


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

    def opened(url: str, grace_s: int, retries: int) -> BaseStorage:
        found.append(url)
        return storage

    monkeypatch.setattr(study, "open_storage", opened)
    return found


def start(file: Path, folder: Path, *settings: str) -> SweepRun:
    experiment = load_experiment(file, settings)
    return start_sweep(experiment, folder, 2, again=False)


def join(file: Path, folder: Path, *settings: str, workers: int = 1) -> SweepRun:
    return join_sweep(load_experiment(file, settings), folder, workers)


def release(started: SweepRun) -> None:
    assert started.lock is not None
    started.lock.release()


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_of_another_sweep_is_changed(file: Path, folder: Path) -> None:
    release(start(file, folder))
    before = files(folder)
    with pytest.raises(ValueError, match="holds another experiment"):
        start(file, folder, "search.steps=31")
    (SweepPaths(folder).own / "identity.json").unlink()
    with pytest.raises(ValueError, match="is that of another experiment"):
        start(file, folder, "search.steps=31")
    SweepPaths(folder).trials.mkdir()
    with pytest.raises(ValueError, match="trials of another sweep"):
        start(file, folder)
    before.pop(SweepPaths(folder).own / "identity.json")
    assert files(folder) == before


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
    assert started.sweep.config.storage == URL
    own = SweepPaths(folder).own_experiment
    experiment = load_experiment(own)
    assert experiment.sweep is not None
    assert (experiment.sweep.storage, experiment.sweep.trials) == ("postgresql://u@h:5/d", 5)
    if by_environment:
        monkeypatch.setenv(STORAGE, URL)
    joined = join(own if by_environment else file, folder, *settings, workers=3)
    assert joined.sweep.config.storage == URL
    assert STORAGE not in os.environ
    assert asked == [URL, URL]
    assert not [path for path, text in files(folder).items() if b"secret" in text]


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


def test_a_sweep_whose_study_is_gone_does_not_begin_anew(file: Path, folder: Path) -> None:
    start(file, folder)
    (folder / "trials").mkdir()
    (folder / "sweep/study.db").unlink()
    with pytest.raises(ValueError, match="no study sweep, though"):
        start(file, folder)


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


def test_nobody_joins_before_every_trial_is_enqueued(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(study, "fill", killed)
        with pytest.raises(KeyboardInterrupt):
            start(file, folder)
    with pytest.raises(ValueError, match="no sweep sweep there yet"):
        join(file, folder)
    release(start(file, folder))
    assert len(entries(join(file, folder).study)) == 4


def test_a_study_of_somebody_else_is_left_alone(file: Path, folder: Path, asked: list[str]) -> None:
    storage = study.open_storage(URL, 10, 1)
    optuna.create_study(storage=storage, study_name=folder.name)
    with pytest.raises(ValueError, match="is no whole sweep; delete it"):
        start(file, folder, f"sweep.storage={URL}")
    assert len(storage.get_all_studies()) == 1


def test_a_sweep_whose_folder_was_renamed_goes_on(file: Path, tmp_path: Path) -> None:
    release(start(file, tmp_path / "a"))
    (tmp_path / "a/trials").mkdir()
    (tmp_path / "a").rename(tmp_path / "b")
    assert len(entries(start(file, tmp_path / "b").study)) == 4


@pytest.mark.parametrize(
    "url",
    [URL.replace("h:5", "127.0.0.1:1"), "nothing://u:secret@h/d", "postgresql://u:secret@h:x"],
)
def test_a_storage_that_cannot_be_used_is_one_line_without_its_password(
    file: Path, folder: Path, url: str
) -> None:
    with pytest.raises(ValueError, match=r"^sweep\.storage: [a-z]+://") as caught:
        start(file, folder, f"sweep.storage={url}")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (SweepPaths(folder).own / "identity.json").exists()


@pytest.mark.parametrize(
    ("given", "workers", "threads"), [("", 2, 4), ("", 16, 1), ("3", 2, 3), ("3", 1, 3)]
)
def test_threads_are_those_of_omp_num_threads_or_a_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, given: str, workers: int, threads: int
) -> None:
    monkeypatch.setattr(worker, "usable_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert share_of_threads(workers) == threads


def test_gpus_are_shared_out_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert [share_of_gpus(place) for place in range(3)] == ["4", "6", "4"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert share_of_gpus(1) is None
