"""A worker's loop: it outlives trials and storages, and never keeps what is no longer its own."""

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from hpo.heartbeat import own_lease
from hpo.queue import LOST, STOPPED, Queue
from hpo.samplers import NumberedSampler
from pipeline.experiment import Experiment, load_experiment
from pipeline.sweep.attempt import ResourceSlice, parse_share
from pipeline.sweep.plan import Sweep, sweep_of
from pipeline.sweep.trial import Failed, Interrupted
from pipeline.sweep.worker import Worker
from tests.pipeline.sweep.test_attempt import found
from tests.sweeping import Clock, add_sweep
from training.signals import Stopped, StopRequest


@pytest.fixture
def sweep(experiment_file: Path, tmp_path: Path) -> Sweep:
    """With a lease of 30 s."""
    return sweep_of(load_experiment(add_sweep(experiment_file, trials=3)), tmp_path / "run")


def worker_of(
    sweep: Sweep, *, parent: int | None = None, clock: Callable[[], float] | None = None
) -> Worker:
    """A worker; without a clock every look finds that a sign is due."""
    looks = itertools.count(0, 30)
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage, sampler=NumberedSampler(sweep.config))
    queue = Queue(study, storage, retries=2)
    queue.fill([{}] * 3)
    return Worker(
        sweep, queue, ResourceSlice(), StopRequest(), parent, clock or (lambda: float(next(looks)))
    )


def states(worker: Worker) -> list[str]:
    return [entry.last.state.name for entry in worker.queue.entries()]


def test_it_works_until_nothing_is_left_whatever_becomes_of_a_trial(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(sweep)

    def run(experiment: Experiment, objectives: Any, folder: Path, *rest: Any) -> Any:
        if "0001" in str(folder):
            raise Failed("exit code 1")
        return found(1.0)

    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
    worker.run()
    assert states(worker) == ["COMPLETE", "FAIL", "COMPLETE"]


def test_a_trial_that_another_worker_took_is_let_go(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = worker_of(sweep)
    calls = []

    def run(*arguments: Any) -> Any:
        around = arguments[-1]
        if not calls:
            calls.append("taken")
            (running,) = worker.queue.trials(TrialState.RUNNING)
            worker.queue.requeue(running, "its worker gave no sign")
            around.alive(None)
        return found(1.0)

    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
    worker.run()
    assert "trial 0: was given to another worker" in capsys.readouterr().out
    assert states(worker) == ["COMPLETE"] * 3
    assert len(worker.queue.entries()[0].attempts) == 2


def test_a_storage_that_is_away_for_a_while_ends_nothing(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(sweep)
    monkeypatch.setattr("hpo.retry.is_transient", lambda error: "away" in str(error))
    monkeypatch.setattr("pipeline.sweep.worker._IDLE_S", 0.01)
    finish, claim, beat, failures = worker.queue.finish, worker.queue.claim, worker.queue.beat, []

    def shaky(action: Any) -> Any:
        def call(*arguments: Any) -> Any:
            failures.append(action)
            if len(failures) % 3:
                raise RuntimeError("the server is away")
            return action(*arguments)

        return call

    for name, action in {"finish": finish, "claim": claim}.items():
        monkeypatch.setattr(worker.queue, name, shaky(action))
    signs = []

    def run(*arguments: Any) -> Any:
        monkeypatch.setattr(worker.queue, "beat", shaky(beat))
        arguments[-1].alive(None)
        monkeypatch.setattr(worker.queue, "beat", beat)
        signs.append("alive")
        return found(1.0)

    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
    worker.run()
    assert states(worker) == ["COMPLETE"] * 3
    assert len(signs) == 3


def test_another_error_of_a_storage_is_raised(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(sweep)

    def broken(*arguments: Any) -> Any:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(worker.queue, "claim", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        worker.run()


def test_a_signal_puts_the_trial_back_and_ends_the_worker(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(sweep)

    def run(*arguments: Any) -> Any:
        worker.stop.number = 15
        with pytest.raises(Interrupted):
            arguments[-1].alive(None)
        raise Interrupted

    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
    with pytest.raises(Stopped) as stopped:
        worker.run()
    assert stopped.value.exit_code == 143
    entry = worker.queue.entries()[0]
    assert entry.attempts[0].user_attrs[LOST] == STOPPED
    assert states(worker) == ["WAITING"] * 3


def test_a_worker_ends_with_the_process_that_started_it(sweep: Sweep) -> None:
    with pytest.raises(Stopped):
        worker_of(sweep, parent=os.getpid()).run()
    worker = worker_of(sweep, parent=os.getppid())
    assert not worker._stopping()


@pytest.mark.parametrize("text", ["", "1", "2/2", "3/2", "-1/2", "a/b", "0/0", "1/"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--share: expected I/N"):
        parse_share(text)


def test_workers_share_out_threads_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)), raising=False)
    assert [parse_share(text).threads for text in ("0/1", "1/3", "2/16", "31/32")] == [16, 5, 1, 1]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    gpus = [ResourceSlice(place, 4).environment["CUDA_VISIBLE_DEVICES"] for place in range(4)]
    assert gpus == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert ResourceSlice(1, 2).environment == {"CUDA_VISIBLE_DEVICES": "7"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert ResourceSlice(1, 2).environment == {}


def test_a_full_disk_ends_the_worker_and_not_the_trial(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(sweep)

    def run(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device", "trial.json")

    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
    with pytest.raises(OSError, match="No space"):
        worker.run()
    assert states(worker) == ["WAITING"] * 3
    assert worker.queue.entries()[0].attempts[0].user_attrs[LOST] == STOPPED


def test_a_process_hears_of_its_worker_only_what_the_storage_heard(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(sweep)
    monkeypatch.setattr("hpo.retry.is_transient", lambda error: True)
    signs = []

    class Process:
        def beat(self) -> None:
            signs.append("alive")

    def away(*arguments: Any) -> Any:
        raise RuntimeError("away")

    trial = worker.queue.claim(worker._lease)
    assert trial is not None
    worker._alive(trial.number, Process())  # type: ignore[arg-type]
    assert signs == ["alive"]
    monkeypatch.setattr(worker.queue, "beat", away)
    worker._alive(trial.number, Process())  # type: ignore[arg-type]
    assert signs == ["alive"]


def test_a_busy_worker_puts_the_trials_of_others_back(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    worker = worker_of(sweep, clock=clock)
    elsewhere = replace(own_lease(), machine="another")
    other = worker.queue.claim(elsewhere)
    assert other is not None
    calls = []

    def run(*arguments: Any) -> Any:
        if not calls:
            calls.append("first")
            for _ in range(15):
                clock.now += 3.0
                arguments[-1].alive(None)
            assert worker.queue.entries()[0].attempts[0].state == TrialState.FAIL
            assert len(worker.queue.entries()[0].attempts) == 2
        return found(1.0)

    monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)
    worker.run()
    assert states(worker) == ["COMPLETE"] * 3
