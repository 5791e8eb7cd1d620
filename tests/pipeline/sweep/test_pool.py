"""A pool: it outlives trials and storages, and never keeps what is no longer its own."""

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from hpo.heartbeat import own_lease
from hpo.queue import LOST, STOPPED, Queue
from hpo.retry import StorageAway, is_transient
from pipeline.experiment import Experiment, load_experiment
from pipeline.processes.run_scripts import Failed
from pipeline.processes.script_process import Interrupted
from pipeline.sweep.plan import Sweep, sweep_of
from pipeline.sweep.pool import Pool
from pipeline.sweep.trial import SeedOutcome
from tests.pipeline.sweep.test_attempt import outcome
from tests.sweeping import Clock, add_sweep, memory_queue, wait_for
from training.endings import Stopped
from training.signals import StopRequest

Run = Callable[..., SeedOutcome]
FULL = OSError(28, "No space left on device", "trial.json")


@pytest.fixture
def sweep(experiment_file: Path, tmp_path: Path) -> Sweep:
    """With a lease of 30 s."""
    return sweep_of(load_experiment(add_sweep(experiment_file, trials=3)), tmp_path / "run")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Lets a function run a trial's seeds; a pool waits for nothing, and every sign is due."""
    for name in ("_POLL_S", "_LOOK_S", "_IDLE_S", "_PAUSE_S"):
        monkeypatch.setattr(f"pipeline.sweep.pool.{name}", 0.01)
    monkeypatch.setattr("pipeline.sweep.attempt._SIGN", 0.0)
    return lambda run: monkeypatch.setattr("pipeline.sweep.attempt.run_seed", run)


def pool_of(sweep: Sweep, *, workers: int = 1, trials: int = 3, **more: Any) -> Pool:
    return Pool(sweep, memory_queue(sweep, [{}] * trials), workers, StopRequest(), **more)


def states(pool: Pool) -> list[str]:
    return [entry.last.state.name for entry in pool.queue.entries()]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_it_works_until_nothing_is_left_whatever_becomes_of_a_trial(
    sweep: Sweep, runs: Callable[[Run], None], workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(experiment: Experiment, objectives: Any, folder: Path, *rest: Any) -> SeedOutcome:
        if "0001" in str(folder):
            raise Failed("exit code 1")
        return outcome(1.0)

    pool = pool_of(sweep, workers=workers)
    runs(run)
    pool.run()
    assert states(pool) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert [len(entry.attempts) for entry in pool.queue.entries()] == [1, 1, 1]
    printed = capsys.readouterr().out
    assert printed.count("[3/3] ") == printed.count("fail: exit code 1") == 1


def test_so_many_trials_run_at_a_time_each_with_its_place(
    sweep: Sweep, runs: Callable[[Run], None]
) -> None:
    together, places = threading.Barrier(3), set()

    def run(*arguments: Any) -> SeedOutcome:
        places.add((arguments[-1].share.place, arguments[-1].share.workers))
        together.wait(60)
        return outcome(1.0)

    runs(run)
    pool_of(sweep, workers=3).run()
    assert places == {(0, 3), (1, 3), (2, 3)}


def test_a_trial_has_the_same_values_whoever_draws_beside_it(
    sweep: Sweep, runs: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def params_with(workers: int) -> list[dict[str, Any]]:
        pool = pool_of(sweep, workers=workers, trials=6)
        sampler = pool.queue.study.sampler
        draw = sampler.sample_independent

        def slowly(*arguments: Any) -> Any:
            time.sleep(0.01)
            return draw(*arguments)

        monkeypatch.setattr(sampler, "sample_independent", slowly)
        pool.run()
        return [entry.last.params for entry in pool.queue.entries()]

    runs(lambda *arguments: outcome(1.0))
    assert params_with(1) == params_with(4)


def test_a_trial_that_another_pool_took_is_let_go(
    sweep: Sweep, runs: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    pool, taken = pool_of(sweep), list[Any]()

    def run(*arguments: Any) -> SeedOutcome:
        if not taken:
            taken.extend(pool.queue.trials(TrialState.RUNNING))
            pool.queue.requeue(taken[0], "its worker gave no sign")
            arguments[-1].check(None)
        return outcome(1.0)

    runs(run)
    pool.run()
    assert "trial 0: was given to another worker" in capsys.readouterr().out
    assert states(pool) == ["COMPLETE"] * 3
    assert len(pool.queue.entries()[0].attempts) == 2


def test_a_storage_that_is_away_for_a_while_ends_nothing(
    sweep: Sweep, runs: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, calls = pool_of(sweep), []
    monkeypatch.setattr("hpo.retry.is_transient", lambda error: "away" in str(error))

    def shaky(action: Any) -> Any:
        def call(*arguments: Any) -> Any:
            calls.append(action)
            if len(calls) % 3:
                raise RuntimeError("the server is away")
            return action(*arguments)

        return call

    for name in ("finish", "claim", "entries", "repair"):
        monkeypatch.setattr(pool.queue, name, shaky(getattr(pool.queue, name)))

    def run(*arguments: Any) -> SeedOutcome:
        with monkeypatch.context() as patched:
            patched.setattr(pool.queue, "beat", shaky(pool.queue.beat))
            arguments[-1].check(None)
            arguments[-1].confirm()
        return outcome(1.0)

    runs(run)
    pool.run()
    monkeypatch.undo()
    assert states(pool) == ["COMPLETE"] * 3


def test_a_storage_whose_answer_got_lost_has_done_what_was_asked(
    sweep: Sweep,
    runs: Callable[[Run], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool, finish = pool_of(sweep), Queue.finish

    def unanswered(*arguments: Any) -> None:
        finish(pool.queue, *arguments)
        raise OSError(errno.ETIMEDOUT, "timed out")

    monkeypatch.setattr(pool.queue, "finish", unanswered)
    runs(lambda *arguments: outcome(1.0))
    pool.run()
    assert states(pool) == ["COMPLETE"] * 3
    assert "another worker" not in capsys.readouterr().out


def test_a_trials_folder_that_is_away_is_not_the_storage(
    sweep: Sweep, runs: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, visits = pool_of(sweep), []

    def run(*arguments: Any) -> SeedOutcome:
        visits.append(arguments)
        if len(visits) == 1:
            raise OSError(errno.ESTALE, "Stale file handle", "trials/0000")
        return outcome(1.0)

    runs(run)
    pool.run()
    assert states(pool) == ["COMPLETE"] * 3

    def away(*arguments: Any) -> Any:
        raise OSError(errno.ESTALE, "Stale file handle", "study.journal")

    pool = pool_of(sweep)
    monkeypatch.setattr("hpo.retry._PATIENCE_S", 0.0)
    monkeypatch.setattr(pool.queue, "claim", away)
    with pytest.raises(StorageAway, match=r"study\.journal") as caught:
        pool.run()
    assert is_transient(caught.value)


def test_an_error_in_a_thread_ends_all_and_is_raised_once_the_others_have_saved_their_state(
    sweep: Sweep, runs: Callable[[Run], None]
) -> None:
    pool, both = pool_of(sweep, workers=2), threading.Barrier(2)

    def run(experiment: Experiment, objectives: Any, folder: Path, *rest: Any) -> SeedOutcome:
        both.wait(60)
        if "0001" in str(folder):
            raise RuntimeError("a mistake of ours")
        while True:
            rest[-1].check(None)

    runs(run)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        pool.run()
    stopped, broken, _ = pool.queue.entries()
    assert stopped.attempts[0].user_attrs[LOST] == STOPPED
    # Its lease is that of a process that ends, so that it comes back; and it counts as a loss.
    assert broken.last.state == TrialState.RUNNING


def test_a_signal_puts_the_trials_back_and_ends_the_pool(
    sweep: Sweep, runs: Callable[[Run], None]
) -> None:
    pool, both = pool_of(sweep, workers=2), threading.Barrier(2)

    def run(*arguments: Any) -> SeedOutcome:
        both.wait(60)
        pool.stop.number = 15
        with pytest.raises(Interrupted):
            arguments[-1].check(None)
        raise Interrupted

    runs(run)
    with pytest.raises(Stopped) as stopped:
        pool.run()
    assert stopped.value.exit_code == 143
    attempts = [entry.attempts[0].user_attrs.get(LOST) for entry in pool.queue.entries()]
    assert attempts == [STOPPED, STOPPED, None]
    assert states(pool) == ["WAITING"] * 3


@pytest.mark.parametrize("name", ["entries", "claim"])
@pytest.mark.usefixtures("runs")
def test_a_signal_ends_a_pool_that_waits_for_a_storage(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def away(*arguments: Any) -> Any:
        pool.stop.number = 2
        raise RuntimeError("away")

    pool = pool_of(sweep)
    monkeypatch.setattr("hpo.retry.is_transient", lambda error: True)
    monkeypatch.setattr(pool.queue, name, away)
    with pytest.raises(Stopped):
        pool.run()


def test_a_signal_ends_a_pool_with_a_thread_that_never_ends(
    sweep: Sweep, runs: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*arguments: Any) -> Any:
        pool.stop.number = 2
        released.wait()

    pool, released = pool_of(sweep), threading.Event()
    runs(hang)
    monkeypatch.setattr("pipeline.sweep.pool._GRACE_S", 0.2)
    with pytest.raises(Stopped):
        pool.run()
    released.set()


def test_a_disk_that_was_full_puts_the_trial_back_and_is_tried_again(
    sweep: Sweep, runs: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    pool, visits = pool_of(sweep), []

    def run(*arguments: Any) -> SeedOutcome:
        visits.append(arguments)
        # More often than may be in a row, but trials end in between.
        if len(visits) % 4:
            raise FULL
        return outcome(1.0)

    runs(run)
    pool.run()
    assert states(pool) == ["COMPLETE"] * 3
    lost = [attempt.user_attrs.get(LOST) for entry in pool.queue.entries() for attempt in
            entry.attempts[:-1]]  # fmt: skip
    assert lost == [STOPPED] * 9
    line = "trial.json: No space left on device; what could not be done is tried again"
    assert capsys.readouterr().out.splitlines().count(line) == 9


def test_a_disk_that_stays_full_ends_the_pool_and_no_trial(
    sweep: Sweep, runs: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(sweep, workers=2)

    def full(*arguments: Any) -> Any:
        raise FULL

    runs(full)
    with pytest.raises(
        ValueError, match=r"^6 errors without a trial .*: trial\.json: No space left"
    ):
        pool.run()
    assert states(pool) == ["WAITING"] * 3
    # The same of what the main thread writes.
    runs(lambda *arguments: outcome(float(wait_for(pool._ending.is_set))))
    pool = pool_of(sweep)
    monkeypatch.setattr(pool.queue, "repair", full)
    with pytest.raises(ValueError, match=r"^6 errors without a trial"):
        pool.run()


def test_a_busy_pool_puts_the_trials_of_a_dead_one_back(
    sweep: Sweep, runs: Callable[[Run], None]
) -> None:
    clock = Clock()
    pool, began = pool_of(sweep, clock=clock), list[float]()
    elsewhere = replace(own_lease(), machine="another")
    assert pool.queue.claim(elsewhere) is not None

    def run(*arguments: Any) -> SeedOutcome:
        def is_back() -> bool:
            clock.now += 1.0
            arguments[-1].check(None)
            return len(pool.queue.entries()[0].attempts) == 2

        if not began:
            began.append(clock.now)
            wait_for(is_back)
            assert clock.now - began[0] >= 30.0
        return outcome(1.0)

    runs(run)
    pool.run()
    assert states(pool) == ["COMPLETE"] * 3
    first = pool.queue.entries()[0].attempts[0]
    assert first.user_attrs[LOST].endswith("gave no sign for 30 s")
