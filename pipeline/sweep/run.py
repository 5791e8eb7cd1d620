"""A sweep from its command line: started here, or joined."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hpo.config import shown
from hpo.queue import Queue
from hpo.retry import is_transient
from pipeline.context import RunPlan, as_saved, set_up
from pipeline.experiment import Experiment, dump_experiment
from pipeline.sweep import study
from pipeline.sweep.attempt import ResourceSlice
from pipeline.sweep.finish import check_experiments, finish
from pipeline.sweep.plan import Sweep, asked_threads, check_tokenizers, sweep_of
from pipeline.sweep.pool import Pool
from pipeline.threads import too_many_threads
from training.endings import Stopped
from training.run_dir import FolderLock, claim, is_claimed
from training.signals import StopRequest
from utils.cores import usable_cores
from utils.files import write_whole

# An address with a password would stand in the command line, which all users of a machine see.
STORAGE = "PARNAS_STORAGE"


@dataclass
class SweepRun:
    """A sweep on this machine.

    Attributes:
        plan: device and text.
        pool: what runs its trials.
        lock: on the sweep's folder, of who has started it and writes its results; None of others.
    """

    plan: RunPlan
    pool: Pool
    lock: FolderLock | None

    def run(self) -> None:
        """Run trials until none is left; write what is there also where the sweep is stopped.

        Raises:
            Stopped: a signal came.
            ValueError: the storage is away for too long, or the system fails again and again.
        """
        with _reached(self.pool.sweep), self.pool.stop.listening():
            try:
                self.pool.run()
            except (Stopped, ValueError):
                self._write_results(done=False)
                raise

    def finish(self) -> None:
        """Latencies, table, figures, the best experiment."""
        with _reached(self.pool.sweep):
            self._write_results(done=True)

    def _write_results(self, *, done: bool) -> None:
        if self.lock is not None:
            finish(self.plan, self.pool.sweep, self.pool.queue, done=done)


def start_sweep(
    experiment: Experiment, run_dir: Path, workers: int, *, retry_failed: bool
) -> SweepRun:
    """Make the study, or go on with it, with so many trials at a time.

    Raises:
        ValueError: the experiment has no sweep, or another one is there.
        OSError: a file cannot be written.
    """
    check_experiments(run_dir)
    sweep = _sweep_of(experiment, run_dir)
    own, identity = sweep.paths.own, study.identity(sweep)
    has_trials = sweep.paths.trials.exists()
    if not is_claimed(own, identity) and has_trials:
        raise ValueError(
            f"{sweep.paths.trials}: trials of another sweep; remove them, or use another --run"
        )
    plan = set_up(experiment, run_dir)
    check_tokenizers(sweep, plan.prepared.tokenizer)
    own.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(own)
    with _reached(sweep):
        queue = study.create(sweep, plan.inputs(), begun=has_trials)
        if retry_failed:
            print(f"{queue.retry_failed()} failed trials run again", flush=True)
        greeting = _greeting(sweep, queue)
    # Not before: what is claimed takes no other space, and the address may have been wrong.
    claim(own, identity, {"environment.json": plan.files()["environment.json"]})
    # Always the newest: the number of trials, limits and what is kept may change.
    write_whole(sweep.paths.own_experiment, dump_experiment(as_saved(experiment)))
    print(greeting, flush=True)
    return SweepRun(plan, _pool(sweep, queue, workers), lock)


def join_sweep(experiment: Experiment, run_dir: Path, workers: int) -> SweepRun:
    """Join a sweep that was started elsewhere.

    Raises:
        ValueError: there is no such sweep yet, or it is another one.
        OSError: the storage cannot be read.
    """
    sweep = _sweep_of(experiment, run_dir)
    plan = set_up(experiment, run_dir)
    with _reached(sweep):
        queue = study.join(sweep, plan.inputs())
    return SweepRun(plan, _pool(sweep, queue, workers), lock=None)


def _sweep_of(experiment: Experiment, run_dir: Path) -> Sweep:
    """The sweep of an experiment; PARNAS_STORAGE, where it is set, stands for sweep.storage."""
    sweep = sweep_of(experiment, run_dir)
    # Taken out, for no trial's process needs it.
    storage = os.environ.pop(STORAGE, sweep.config.storage)
    return replace(sweep, config=sweep.config.model_copy(update={"storage": storage}))


def _pool(sweep: Sweep, queue: Queue, workers: int) -> Pool:
    threads = asked_threads(sweep) or ResourceSlice(0, workers).threads
    if warning := too_many_threads(threads, workers, usable_cores()):
        print(warning, flush=True)
    return Pool(sweep, queue, workers, StopRequest())


@contextmanager
def _reached(sweep: Sweep) -> Iterator[None]:
    """Say in one line that a storage is away for longer than anyone waits."""
    try:
        yield
    except Exception as error:
        if not is_transient(error):
            raise
        raise ValueError(
            f"sweep.storage: {sweep.shown_storage} does not answer; the study and the trials' "
            "checkpoints stay as they are. When it answers again, the same command goes on"
        ) from error


def _greeting(sweep: Sweep, queue: Queue) -> str:
    entries = queue.entries()
    done = sum(entry.finished for entry in entries)
    goals = ", ".join(sweep.config.objectives)
    return (
        f"sweep {sweep.paths.run}: {len(entries)} trials ({done} done), objective {goals}, "
        f"sampler {sweep.config.sampler.kind}, pruner {sweep.config.pruner.kind}, "
        f"storage {shown(sweep.config.storage)}"
    )
