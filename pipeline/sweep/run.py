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

from hpo.study import Entry, Retry, entries, requeue_lost, retry_failed
from pipeline.devices import too_many_threads
from pipeline.experiment import Experiment, dump_experiment
from pipeline.plan import RunPlan, as_saved, set_up
from pipeline.sweep import study as studies
from pipeline.sweep.finish import check_experiments, finish
from pipeline.sweep.plan import Sweep, asked_threads, check_tokenizers, sweep_of
from pipeline.sweep.progress import Progress
from pipeline.sweep.results import clean
from pipeline.sweep.worker import USELESS, ResourceSlice, work, worker_name
from training.run_dir import FolderLock, claim, is_claimed
from training.signals import Stopped, StopRequest
from utils.cores import usable_cores
from utils.files import write_whole

# An address with a password would stand in the command line, which all users of a machine see.
STORAGE = "PARNAS_STORAGE"
_POLL_S = 0.5


@dataclass
class SweepRun:
    """A sweep on this machine.

    Attributes:
        plan: device and text.
        sweep: what is swept.
        study: its trials.
        workers: how many trials run at a time.
        lock: on the sweep's folder, of who has started it and writes its results; None of others.
        stop: a signal.
    """

    plan: RunPlan
    sweep: Sweep
    study: optuna.Study
    workers: int
    lock: FolderLock | None
    stop: StopRequest = field(default_factory=StopRequest)
    _dead: set[str] = field(default_factory=set)
    _started: int = 0

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
                self._write_results(done=False)
                raise

    def finish(self) -> None:
        """Latencies, table, figures, the best experiment."""
        with _reached(self.sweep):
            self._write_results(done=True)

    def _write_results(self, *, done: bool) -> None:
        if self.lock is not None:
            finish(self.plan, self.sweep, self.study, done=done)

    def _run_workers(self) -> None:
        trials = entries(self.study)
        progress, places = Progress(self.sweep, trials), dict[int, SpawnProcess]()
        try:
            while any(not entry.finished for entry in trials) and self.stop.number is None:
                for place in range(self.workers):
                    if place not in places:
                        places[place] = self._start(place, len(trials))
                trials = self._look(places, progress)
        finally:
            for process in places.values():
                process.terminate()  # it saves a checkpoint first
            while places:
                trials = self._look(places, progress)
            progress.show(trials, last=True)

    def _look(self, places: dict[int, SpawnProcess], progress: Progress) -> list[Entry]:
        """See which workers have ended, and what became of the trials."""
        time.sleep(_POLL_S)
        ended = {place: one for place, one in places.items() if one.exitcode is not None}
        for place, process in ended.items():
            assert process.pid is not None
            self._dead.add(worker_name(process.pid))
            del places[place]
        requeue_lost(self.study, Retry(self.sweep.config.retries), self._dead)
        trials = entries(self.study)
        if progress.show(trials):
            clean(trials, self.sweep)
        if any(process.exitcode in (1, USELESS) for process in ended.values()):
            raise ValueError("a worker could not go on; its message stands above")
        return trials

    def _start(self, place: int, trials: int) -> SpawnProcess:
        self._started += 1
        if self._started > self.workers + trials * (self.sweep.config.retries + 2):
            raise ValueError(f"{self._started} workers were started, and died again and again")
        share = ResourceSlice(place, self.workers)
        threads = asked_threads(self.sweep) or share.threads
        arguments = (self.sweep, self.plan.inputs(), share.gpu, threads)
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
    check_experiments(run_dir)
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
            greeting = _greeting(sweep, study)
        # Not before: what is claimed takes no other space, and the address may have been wrong.
        claim(own, identity, {"environment.json": plan.files()["environment.json"]})
        # Always the newest: the number of trials, limits and what is kept may change.
        write_whole(sweep.paths.own_experiment, dump_experiment(as_saved(experiment)))
        print(greeting, flush=True)
    except BaseException:
        lock.release()
        raise
    return _sweep_run(plan, sweep, study, workers, lock)


def join_sweep(experiment: Experiment, run_dir: Path, workers: int) -> SweepRun:
    """Join a sweep that was started elsewhere.

    Raises:
        ValueError: there is no such sweep yet, or it is another one.
    """
    sweep = _sweep_of(experiment, run_dir)
    plan = set_up(experiment, run_dir)
    with _reached(sweep):
        study = studies.join_study(sweep, plan.inputs())
    return _sweep_run(plan, sweep, study, workers, None)


def _sweep_of(experiment: Experiment, run_dir: Path) -> Sweep:
    """The sweep of an experiment; PARNAS_STORAGE, where it is set, stands for sweep.storage."""
    sweep = sweep_of(experiment, run_dir)
    # Taken out, for no process that a trial starts needs it.
    storage = os.environ.pop(STORAGE, sweep.config.storage)
    return replace(sweep, config=sweep.config.model_copy(update={"storage": storage}))


def _sweep_run(
    plan: RunPlan, sweep: Sweep, study: optuna.Study, workers: int, lock: FolderLock | None
) -> SweepRun:
    threads = asked_threads(sweep) or ResourceSlice(0, workers).threads
    if warning := too_many_threads(threads, workers, usable_cores()):
        print(warning, flush=True)
    return SweepRun(plan, sweep, study, workers, lock)


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


def _greeting(sweep: Sweep, study: optuna.Study) -> str:
    trials = entries(study)
    done = sum(entry.finished for entry in trials)
    goals = ", ".join(sweep.config.objectives)
    return (
        f"sweep {sweep.paths.run}: {len(trials)} trials ({done} done), objective {goals}, "
        f"sampler {sweep.config.sampler.kind}, pruner {sweep.config.pruner.kind}, "
        f"storage {sweep.shown_storage}"
    )
