"""Several runs at a time: their share of the cores, and how they end together."""

import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline import jobs
from pipeline.experiment import load_experiment
from pipeline.jobs import Countdown, Failed, Job, run_all
from training.signals import Diverged, StopRequest


def test_several_runs_with_asked_threads_are_warned_of_once(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(jobs, "usable_cores", lambda: 2)
    monkeypatch.setattr(jobs, "run_scripts", lambda *arguments: None)

    def said(workers: int, **settings: Any) -> str:
        overrides = [f"{key}={value}" for key, value in settings.items()]
        experiment = load_experiment(experiment_file, overrides)
        jobs = [Job(name, experiment, ("derive",), tmp_path / name) for name in "abc"]
        run_all(jobs, workers=workers, stop=StopRequest(), done=lambda job: None)
        return capsys.readouterr().out

    assert said(2, **{"run.threads": 1}) == ""
    assert said(2, **{"run.threads": "null"}) == ""
    warning = said(2, **{"run.threads": 2})
    assert warning.startswith("warning: 2 x 2 threads for 2 cores")
    assert warning.count("\n") == 1
    # There are three jobs, however many may run at a time.
    assert said(9, **{"run.threads": 1}).startswith("warning: 3 x 1 threads")


@pytest.mark.parametrize(("code", "ending"), [(3, Diverged), (2, ValueError), (-9, ValueError)])
def test_a_run_that_diverged_ends_all_as_divergence_does(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    ending: type[Exception],
) -> None:
    def failing(*arguments: Any) -> None:
        raise Failed("no number", code)

    monkeypatch.setattr(jobs, "run_scripts", failing)
    one = Job("one", load_experiment(experiment_file, []), ("retrain",), tmp_path / "one")
    with pytest.raises(ending, match=r"^one: no number$"):
        run_all([one], workers=1, stop=StopRequest(), done=lambda job: None)


@pytest.mark.parametrize("own", [(), ("--run", "elsewhere")])
def test_a_job_with_its_own_arguments_gets_its_share_of_the_cores_and_no_setting(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...]
) -> None:
    """Without threads in the experiment, which later commands would take from its folder."""
    monkeypatch.setattr(jobs, "usable_cores", lambda: 6)
    given = list[Any]()
    monkeypatch.setattr(jobs, "run_scripts", lambda *arguments: given.append(arguments))
    experiment = load_experiment(experiment_file, ["run.threads=null"])
    todo = [Job("one", experiment, ("retrain",), tmp_path / "one", own)]
    run_all(todo, workers=2, stop=StopRequest(), done=lambda job: None)
    ((used, _, _, _, environment, arguments),) = given
    assert arguments == own
    assert used.run.threads == (None if own else 3)
    assert (used == experiment) == bool(own)
    assert environment == ({"OMP_NUM_THREADS": "3"} if own else {})


def test_a_countdown_of_several_workers_counts_their_rounds() -> None:
    """Five runs of ten seconds, two at a time: they end at 10, 10, 20, 20 and 30."""
    times_s = iter([0.0, 10.0, 10.0, 20.0, 20.0, 30.0])
    countdown = Countdown(5, workers=2, clock=lambda: next(times_s))
    left = [countdown.line("").partition("; ")[2] for _ in range(5)]
    assert left == [f"about 0:{rest_s} left" for rest_s in (20, 20, 10, 10)] + [""]


@pytest.mark.parametrize(("device", "gpus"), [("auto", {"0", "1"}), ("cpu", {None})])
def test_runs_at_a_time_have_a_gpu_each(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, gpus: Any
) -> None:
    both, given = threading.Barrier(2), list[str | None]()

    def started(*arguments: Any) -> None:
        given.append(arguments[4].get("CUDA_VISIBLE_DEVICES"))
        both.wait(60)

    monkeypatch.setattr(jobs, "run_scripts", started)
    monkeypatch.setattr(jobs, "share_of_gpus", str)
    experiment = load_experiment(experiment_file, [f"run.device={device}"])
    four = [Job(name, experiment, ("derive",), tmp_path / name) for name in "abcd"]
    run_all(four, workers=2, stop=StopRequest(), done=lambda job: None)
    assert [set(given[:2]), set(given[2:])] == [gpus, gpus]
