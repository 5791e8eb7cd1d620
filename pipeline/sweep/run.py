"""A sweep from its command line: started here, or joined; its workers and its end."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path

import optuna

from hpo.study import STOPPED, Entry, entries, retry_failed
from pipeline.devices import share_of_gpus, too_many_threads
from pipeline.experiment import Experiment, dump_experiment
from pipeline.plan import RunPlan, set_up
from pipeline.sweep import study as studies
from pipeline.sweep.plan import Sweep, asked_threads, check_tokenizers, sweep_of
from pipeline.sweep.results import LOST, clean, finish, objectives, rows, written_experiments
from pipeline.sweep.worker import USELESS, share_of_threads, work
from report.sweep.trials import value_text
from training.run_dir import FolderLock, claim, is_claimed
from training.signals import Stopped, StopRequest
from utils.cores import usable_cores
from utils.files import write_whole
from utils.screen import announce
from utils.text import duration

# An address with a password would stand in the command line, which all users of a machine see.
STORAGE = "PARNAS_STORAGE"
_POLL_S = 0.5
_LEFT_S = 120.0


@dataclass
class Progress:
    """Prints news of a sweep; what had ended at its making is known from an earlier command."""

    sweep: Sweep
    before: list[Entry]
    _began_s: float = field(default_factory=time.monotonic)
    _left_s: float = field(default_factory=time.monotonic)
    _known: set[int] = field(init=False)
    _seen: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self._known = self._seen = _finished(self.before)

    def show(self, found: list[Entry]) -> bool:
        """Print a line for every attempt that was lost and every trial that ended; if there are.

        Only what was so before: who finds a dead worker's trial lets it fail, and only then
        enqueues it again.
        """
        finished, new = _finished(found), False
        sure, self._seen = finished & self._seen - self._known, finished
        self._known = self._known | sure
        for entry in found:
            for attempt in entry.attempts:
                if attempt.number in sure and attempt is entry.last:
                    new = True
                    announce(f"[{self.ended(found)}/{len(found)}] {self._line(entry)}")
                elif attempt.number in sure and STOPPED not in attempt.user_attrs:
                    announce(f"trial {entry.number}: {LOST}; it runs again")
        self._show_left(found)
        return new

    def ended(self, found: list[Entry]) -> int:
        """Number of trials of which nothing more will come."""
        return sum(entry.last.number in self._known for entry in found)

    def _show_left(self, found: list[Entry]) -> None:
        """Print now and then about how long the rest takes."""
        ended = self.ended(found)
        rest, done = len(found) - ended, ended - sum(entry.finished for entry in self.before)
        if done > 0 and rest and time.monotonic() - self._left_s >= _LEFT_S:
            self._left_s = time.monotonic()
            announce(f"about {duration((self._left_s - self._began_s) / done * rest)} left")

    def _line(self, entry: Entry) -> str:
        (row,), goals = rows(self.sweep, [entry]), objectives(self.sweep)
        parts = [f"trial {row.number}"]
        if row.values is None:
            parts.append(f"{row.state}: {row.reason}")
        else:
            pairs = zip(goals, row.values, strict=True)
            parts.append("; ".join(f"{goal.text(one)} {goal.shown_unit}" for goal, one in pairs))
            parts.append(row.layout or "")
        parts.append(", ".join(f"{key}={value_text(value)}" for key, value in row.params.items()))
        if row.attempts > 1:
            parts.append(f"{row.attempts} attempts")
        return "  ".join(part for part in parts if part)


def _finished(found: list[Entry]) -> set[int]:
    attempts = [attempt for entry in found for attempt in entry.attempts]
    return {attempt.number for attempt in attempts if attempt.state.is_finished()}


@dataclass
class SweepRun:
    """A sweep on this machine, with so many `workers` at a time.

    The `lock` on the sweep's folder is of who has started it and writes its results; others have
    none.
    """

    plan: RunPlan
    sweep: Sweep
    study: optuna.Study
    workers: int
    lock: FolderLock | None
    stop: StopRequest = field(default_factory=StopRequest)
    _started: int = 0

    def __post_init__(self) -> None:
        if warning := too_many_threads(self._threads, self.workers, usable_cores()):
            print(warning, flush=True)

    @property
    def _threads(self) -> int:
        return asked_threads(self.sweep) or share_of_threads(self.workers)

    def run(self) -> None:
        """Run trials until none is left; write what is there also where the sweep is stopped.

        Raises:
            Stopped: a signal came.
            ValueError: a worker cannot go on, or workers die again and again.
        """
        with _reached(self.sweep), self.stop.listening():
            try:
                self._run_workers()
                if self.stop.number is not None:
                    raise Stopped(self.stop.number)
            except (Stopped, ValueError):
                self._write_results(ended=False)
                raise

    def finish(self) -> None:
        """Latencies, table, figures, the best experiment."""
        with _reached(self.sweep):
            self._write_results(ended=True)

    def _write_results(self, *, ended: bool) -> None:
        if self.lock is not None:
            finish(self.plan, self.sweep, entries(self.study), ended=ended)

    def _run_workers(self) -> None:
        trials, places = entries(self.study), dict[int, SpawnProcess]()
        progress = Progress(self.sweep, trials)
        try:
            while progress.ended(trials) < len(trials) and self.stop.number is None:
                left = any(not entry.finished for entry in trials)
                for place in range(self.workers if left else 0):
                    if place not in places:
                        places[place] = self._start(place, len(trials))
                trials = self._look(places)
                if progress.show(trials):
                    clean(self.sweep, trials)
        finally:
            for process in places.values():
                process.terminate()  # it saves a checkpoint first
            while places:
                progress.show(self._look(places))
            progress.show(entries(self.study))

    def _look(self, places: dict[int, SpawnProcess]) -> list[Entry]:
        """See which workers have ended, and what became of the trials."""
        time.sleep(_POLL_S)
        ended = [place for place, process in places.items() if process.exitcode is not None]
        codes = [places.pop(place).exitcode for place in ended]
        if any(code in (1, USELESS) for code in codes):
            raise ValueError("a worker could not go on; its message stands above")
        return entries(self.study)

    def _start(self, place: int, trials: int) -> SpawnProcess:
        self._started += 1
        if self._started > self.workers + trials * (self.sweep.config.retries + 2):
            raise ValueError(f"{self._started} workers were started, and died again and again")
        arguments = (self.sweep, self.plan.inputs(), share_of_gpus(place), self._threads)
        process = get_context("spawn").Process(target=work, args=arguments, daemon=True)
        # Not for its imports either: a worker is asked to end by this process alone.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        process.start()
        signal.signal(signal.SIGINT, before)
        return process


def start_sweep(experiment: Experiment, run_dir: Path, workers: int, *, again: bool) -> SweepRun:
    """Make the study, or go on with it, with so many trials at a time.

    `again`: trials that have failed are run again.

    Raises:
        ValueError: the experiment has no sweep, or another one is there.
        OSError: a file cannot be written.
    """
    written_experiments(run_dir)
    sweep = _sweep_of(experiment, run_dir)
    own, identity = sweep.paths.own, studies.identity(sweep)
    has_trials = sweep.paths.trials.exists()
    if not is_claimed(own, identity) and has_trials:
        raise ValueError(
            f"{sweep.paths.trials}: trials of another sweep; remove them, or use another --run"
        )
    plan = set_up(experiment, run_dir)
    check_tokenizers(sweep, plan.prepared.tokenizer)
    own.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(own)
    try:
        with _reached(sweep):
            study = studies.create_study(sweep, plan.inputs(), begun=has_trials)
            if again:
                print(f"{retry_failed(study)} failed trials run again", flush=True)
            trials = entries(study)
        # Not before: what is claimed takes no other space, and the address may have been wrong.
        claim(own, identity, {"environment.json": plan.files()["environment.json"]})
        # Always the newest: the number of trials, limits and what is kept may change.
        write_whole(sweep.paths.own_experiment, dump_experiment(experiment))
        print(
            f"sweep {run_dir}: {len(trials)} trials ({sum(one.finished for one in trials)} done), "
            f"objective {', '.join(sweep.config.objectives)}, sampler {sweep.config.sampler.kind}, "
            f"pruner {sweep.config.pruner.kind}, storage {sweep.shown_storage}",
            flush=True,
        )
    except BaseException:
        lock.release()
        raise
    return SweepRun(plan, sweep, study, workers, lock)


def join_sweep(experiment: Experiment, run_dir: Path, workers: int) -> SweepRun:
    """Join a sweep that was started elsewhere.

    Raises:
        ValueError: there is no such sweep yet, or it is another one.
    """
    sweep = _sweep_of(experiment, run_dir)
    plan = set_up(experiment, run_dir)
    with _reached(sweep):
        study = studies.join_study(sweep, plan.inputs())
    return SweepRun(plan, sweep, study, workers, None)


def _sweep_of(experiment: Experiment, run_dir: Path) -> Sweep:
    """The sweep of an experiment; PARNAS_STORAGE, where it is set, stands for sweep.storage."""
    sweep = sweep_of(experiment, run_dir)
    # Taken out, for no process that a trial starts needs it.
    storage = os.environ.pop(STORAGE, sweep.config.storage)
    return replace(sweep, config=sweep.config.model_copy(update={"storage": storage}))


@contextmanager
def _reached(sweep: Sweep) -> Iterator[None]:
    """Say in one line that the study's database cannot be used."""
    try:
        yield
    except studies.STORAGE_ERRORS as error:
        raise ValueError(
            f"{studies.storage_problem(sweep, error)}; the trials' checkpoints stay. When it "
            "answers again, the same command goes on"
        ) from error
