"""Several runs at a time: their share of the cores, and how they end together."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import jobs
from pipeline.experiment import load_experiment
from pipeline.jobs import Countdown, Failed, Job, run_all
from tests.runs import locked_by_another
from training.signals import Diverged, Lost, StopRequest


def test_where_memory_ran_out_nothing_is_known_of_the_loss() -> None:
    """As a layout that diverged it would count as the worst, for good."""
    assert Failed("exit code 3: diverged at step 2: the loss is nan nats", 3).diverged
    assert not Failed("exit code 3: out of memory (CUDA out of memory. Tried ...", 3).diverged


@pytest.mark.parametrize(("code", "ending"), [(3, Diverged), (2, ValueError), (-9, Lost)])
def test_a_run_that_diverged_ends_all_as_divergence_does(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    ending: type[Exception],
) -> None:
    def failing(*arguments: Any) -> None:
        raise Failed("no number", code)

    monkeypatch.setattr(jobs, "run_job", failing)
    one = Job("one", load_experiment(experiment_file, []), ("retrain",), tmp_path / "one")
    with pytest.raises(ending, match=r"^one: no number$"):
        run_all([one], workers=1, stop=StopRequest(), done=lambda job: None)


def test_of_two_commands_with_the_same_runs_the_second_begins_none(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "run_job", lambda *_: pytest.fail("it begins"))
    experiment = load_experiment(experiment_file, [])
    one, two = (Job(name, experiment, ("retrain",), tmp_path / name) for name in ("one", "two"))
    two.folder.mkdir()
    with (
        locked_by_another(two.folder, "job.lock"),
        pytest.raises(ValueError, match="two: another process is training here; wait for it"),
    ):
        run_all([one, two], workers=2, stop=StopRequest(), done=lambda job: None)


def test_of_a_jobs_scripts_none_runs_after_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    called = list[str]()

    def imported(name: str) -> Any:
        called.append(name)
        return SimpleNamespace(main=lambda arguments: 2 * (name == "derive"))

    monkeypatch.setattr(jobs, "importlib", SimpleNamespace(import_module=imported))
    monkeypatch.setattr(jobs, "_end_with_starter", lambda: None)
    monkeypatch.setattr(jobs.sys, "argv", [])
    assert jobs.main(["search,derive,retrain", "experiment.yaml"]) == 2
    assert called == ["search", "derive"]


def test_what_a_finished_run_chose_is_not_chosen_again(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[str]()

    def started(command: Any, **_: Any) -> Any:
        begun.append(command[-4])
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(jobs.subprocess, "Popen", started)
    chosen = tmp_path / "architecture.json"
    # An architecture beside no experiment is one to train: its job does not derive.
    for scripts in (("retrain",), jobs.SCRIPTS, jobs.SCRIPTS, ("derive",)):
        chosen.touch()
        experiment = load_experiment(experiment_file, [])
        jobs.run_job(Job("one", experiment, scripts, tmp_path), StopRequest(), {})
    experiment = load_experiment(experiment_file, ["run.seed=1"])
    for _ in range(2):  # the choice of another experiment is none, also if this one was stopped
        jobs.run_job(Job("one", experiment, jobs.SCRIPTS, tmp_path), StopRequest(), {})
        assert not chosen.exists()
    whole = "search,derive,retrain"
    assert begun == ["retrain", "search,retrain", "search,retrain", whole, whole]


def test_a_countdown_counts_all_stages_and_those_that_run_beside() -> None:
    times_s = iter([0.0, 10.0, 10.0, 30.0, 30.0, 50.0])
    countdown = Countdown(0, workers=2, clock=lambda: next(times_s))
    # Two of half length and four of full.
    countdown.expect(7, 2 * 0.5 + 5)
    countdown.leave_out(1)
    lines = [countdown.line("a", 0.5), countdown.line("a", 0.5)]
    lines += [countdown.line("a") for _ in range(3)]
    assert lines == [
        "[1/6] a; about 0:40 left", "[2/6] a; about 0:40 left", "[3/6] a; about 0:20 left",
        "[4/6] a; about 0:20 left", "[5/6] a",
    ]  # fmt: skip


@pytest.mark.parametrize(("device", "gpus"), [("auto", {"0", "1"}), ("cpu", {None})])
def test_runs_at_a_time_have_a_gpu_each(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, gpus: Any
) -> None:
    both, given = threading.Barrier(2), list[str | None]()

    def started(*arguments: Any) -> None:
        given.append(arguments[2].get("CUDA_VISIBLE_DEVICES"))
        both.wait(60)

    monkeypatch.setattr(jobs, "run_job", started)
    monkeypatch.setattr(jobs, "share_of_gpus", str)
    experiment = load_experiment(experiment_file, [f"run.device={device}"])
    four = [Job(name, experiment, ("derive",), tmp_path / name) for name in "abcd"]
    run_all(four, workers=2, stop=StopRequest(), done=lambda job: None)
    assert [set(given[:2]), set(given[2:])] == [gpus, gpus]
