"""Starting and joining a sweep: what is written when, and what is refused."""

from pathlib import Path

import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import TrialState

import sweep as sweep_script
from hpo.study import entries
from pipeline.devices import share_of_gpus
from pipeline.experiment import load_experiment
from pipeline.sweep import plan, run
from pipeline.sweep.plan import Sweep
from pipeline.sweep.run import join_sweep, start_sweep
from tests.runs import locked_by_another, refused
from tests.sweeping import add_sweep
from utils.cores import share_of_threads

URL = "postgresql://u:secret@h:5/d"


@pytest.fixture
def file(experiment_file: Path) -> Path:
    return add_sweep(experiment_file, trials=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


Begun = list[tuple[Sweep, optuna.Study]]


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    """The sweeps that were begun, whose trials nobody runs."""
    found: Begun = []
    monkeypatch.setattr(run, "run_trials", lambda sweep, study, *_: found.append((sweep, study)))
    monkeypatch.setattr(run, "finish", lambda *_, **__: None)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The storages that were opened; all are one in memory."""
    found: list[str] = []
    storage = InMemoryStorage()

    def opened(url: str, grace_s: int, retries: int) -> BaseStorage:
        found.append(url)
        return storage

    monkeypatch.setattr(plan, "open_storage", opened)
    return found


def start(file: Path, folder: Path, *settings: str) -> None:
    start_sweep(load_experiment(file, settings), folder, 2, again=False)


def join(file: Path, folder: Path, *settings: str, workers: int = 1) -> None:
    join_sweep(load_experiment(file, settings), folder, workers)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_of_another_sweep_is_changed(file: Path, folder: Path) -> None:
    start(file, folder)
    before = files(folder)
    with pytest.raises(ValueError, match="holds another experiment"):
        start(file, folder, "search.steps=31")
    (folder / "sweep/identity.json").unlink()
    with pytest.raises(ValueError, match="is that of another experiment"):
        start(file, folder, "search.steps=31")
    before.pop(folder / "sweep/identity.json")
    assert files(folder) == before


def test_a_second_start_is_refused_before_it_writes(file: Path, folder: Path) -> None:
    own = folder / "sweep"
    own.mkdir(parents=True)
    with (
        locked_by_another(own, "lock"),
        pytest.raises(ValueError, match="another process is training here"),
    ):
        start(file, folder)
    assert [path.name for path in own.iterdir()] == ["lock"]


def test_a_password_is_written_nowhere(
    file: Path, folder: Path, asked: list[str], begun: Begun
) -> None:
    given = f"sweep.storage={URL}"
    start(file, folder, given, "sweep.trials=5")
    experiment = load_experiment(folder / "sweep/experiment.yaml")
    assert experiment.sweep is not None
    assert (experiment.sweep.storage, experiment.sweep.trials) == ("postgresql://u@h:5/d", 5)
    join(folder / "sweep/experiment.yaml", folder, given, workers=3)
    assert [sweep.config.storage for sweep, _ in begun] == [URL, URL]
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

    monkeypatch.setattr(plan, "make_pruner", pruner)
    start(file, folder, "sweep.set={run.validate_every: 7}")
    assert intervals == [7]


def test_a_sweep_whose_study_is_gone_does_not_begin_anew(file: Path, folder: Path) -> None:
    start(file, folder)
    (folder / "trials").mkdir()
    (folder / "sweep/study.db").unlink()
    with pytest.raises(ValueError, match="no study sweep, though"):
        start(file, folder)


def test_a_study_of_somebody_else_is_left_as_it_is(
    file: Path, folder: Path, asked: list[str], begun: Begun
) -> None:
    study = optuna.create_study(
        storage=plan.open_storage(URL, 9, 0), study_name=folder.name, direction="maximize"
    )
    study.optimize(lambda trial: 1.0, n_trials=1)
    with pytest.raises(ValueError, match=f"its study {folder.name} is no sweep of Parnas"):
        start(file, folder, f"sweep.storage={URL}")
    assert (len(study.trials), study.user_attrs, study.metric_names, begun) == (1, {}, None, [])


def test_a_file_without_a_sweep_is_refused_also_by_check(
    experiment_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--check"]):
        said = refused(sweep_script, capsys, experiment_file, *more)
        assert f"{experiment_file}: sweep: missing" in said


def test_nobody_joins_before_every_trial_is_enqueued(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, begun: Begun
) -> None:
    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(plan, "fill", killed)
        with pytest.raises(KeyboardInterrupt):
            start(file, folder)
    with pytest.raises(ValueError, match="no sweep there yet"):
        join(file, folder)
    start(file, folder)
    join(file, folder)
    assert [len(entries(study)) for _, study in begun] == [4, 4]


def test_a_worker_of_a_sweep_that_has_ended_is_told_so(
    file: Path, folder: Path, begun: Begun, capsys: pytest.CaptureFixture[str]
) -> None:
    start(file, folder)
    for trial in begun[0][1].trials:
        begun[0][1]._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        begun[0][1]._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
    capsys.readouterr()
    join(file, folder)
    said = capsys.readouterr().out
    assert said == f"sweep {folder}: every trial has ended, so a worker has nothing to do\n"
    assert len(begun) == 1


def test_a_sweep_whose_folder_was_renamed_goes_on(file: Path, tmp_path: Path, begun: Begun) -> None:
    start(file, tmp_path / "a")
    (tmp_path / "a/trials").mkdir()
    (tmp_path / "a").rename(tmp_path / "b")
    start(file, tmp_path / "b")
    assert len(entries(begun[1][1])) == 4


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
    assert not (folder / "sweep/identity.json").exists()


@pytest.mark.parametrize(
    ("given", "workers", "threads"),
    [("", 2, 4), ("", 16, 1), ("3", 2, 3), ("3", 1, 3), ("0", 1, 1)],
)
def test_threads_are_those_of_omp_num_threads_or_a_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, given: str, workers: int, threads: int
) -> None:
    monkeypatch.setattr("utils.cores.usable_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert share_of_threads(workers) == threads


def test_gpus_are_shared_out_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert [share_of_gpus(place) for place in range(3)] == ["4", "6", "4"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert share_of_gpus(1) is None
