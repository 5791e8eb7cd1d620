"""A sweep from its command line: the parent with its workers, or workers that join."""

import os
import socket
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hpo.config import JOURNAL, shown
from hpo.queue import Queue
from hpo.retry import is_transient
from pipeline.context import RunPlan, as_saved, set_up
from pipeline.experiment import Experiment, dump_experiment
from pipeline.resources import too_many_threads
from pipeline.sweep import study
from pipeline.sweep.attempt import ResourceSlice, parse_share
from pipeline.sweep.finish import finish
from pipeline.sweep.parent import STORAGE, Parent
from pipeline.sweep.plan import Sweep, asked_threads, check_tokenizers, sweep_of
from pipeline.sweep.worker import Worker
from training.run_dir import FolderLock, claim, is_claimed
from training.signals import Stopped, StopRequest
from utils.cores import usable_cores
from utils.files import write_whole


@dataclass
class ParentRun:
    """The process that a person starts: workers, then results."""

    bench: RunPlan
    sweep: Sweep
    queue: Queue
    workers: int
    lock: FolderLock

    def run(self) -> None:
        """Run every trial; write what is there also where the sweep is stopped.

        Raises:
            Stopped: a signal came.
            ValueError: the storage is away for too long, or workers end badly again and again.
        """
        arguments = _again(self.sweep, self.sweep.paths.own_experiment)
        with _reached(self.sweep), StopRequest().listening() as stop:
            parent = Parent(self.sweep, self.queue, arguments, self.workers, stop)
            try:
                parent.run()
            except (Stopped, ValueError):
                finish(self.bench, self.sweep, self.queue, done=False)
                raise

    def finish(self) -> None:
        """Latencies, table, figures, the best experiment."""
        with _reached(self.sweep):
            finish(self.bench, self.sweep, self.queue, done=True)


@dataclass
class JoinedRun:
    """A worker, or several, in a sweep that was started elsewhere."""

    worker: Worker | Parent

    def run(self) -> None:
        """Run trials until none is left."""
        with _reached(self.worker.sweep), self.worker.stop.listening():
            self.worker.run()

    def finish(self) -> None:
        """Nothing: whoever started the sweep writes the results."""


def start_sweep(experiment: Experiment, run_dir: Path, arguments: Namespace) -> ParentRun:
    """Make the study, or go on with it.

    Raises:
        ValueError: the experiment has no sweep, or another one is there.
        OSError: a file cannot be written.
    """
    sweep = sweep_of(experiment, run_dir)
    own, identity = sweep.paths.own, study.identity(sweep)
    if not is_claimed(own, identity) and sweep.paths.trials.exists():
        raise ValueError(
            f"{sweep.paths.trials}: trials of another sweep; remove them, or use another --run"
        )
    bench = set_up(experiment, run_dir)
    check_tokenizers(sweep, bench.prepared.tokenizer)
    own.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(own)
    with _reached(sweep):
        queue = study.create(sweep, bench)
        if arguments.retry_failed:
            print(f"{queue.retry_failed()} failed trials run again", flush=True)
        greeting = _greeting(sweep, queue)
    # Not before: what is claimed takes no other space, and the address may have been wrong.
    claim(own, identity, {"environment.json": bench.files()["environment.json"]})
    # Always the newest: the number of trials, limits and what is kept may change.
    write_whole(sweep.paths.own_experiment, dump_experiment(as_saved(experiment)))
    print(greeting, flush=True)
    _warn_of_threads(sweep, arguments.workers)
    return ParentRun(bench, sweep, queue, arguments.workers, lock)


def join_sweep(experiment: Experiment, run_dir: Path, arguments: Namespace) -> JoinedRun:
    """Join a sweep as a worker, or as several.

    The variable PARNAS_STORAGE, where it is set, stands for sweep.storage.

    Raises:
        ValueError: there is no such sweep yet, or it is another one.
        OSError: the storage cannot be read.
    """
    sweep = sweep_of(experiment, run_dir)
    # LeaseLost out, for no trial's process needs it.
    storage = os.environ.pop(STORAGE, sweep.config.storage)
    sweep = replace(sweep, config=sweep.config.model_copy(update={"storage": storage}))
    share = parse_share(arguments.share)
    bench = set_up(experiment, run_dir)
    with _reached(sweep):
        queue = study.join(sweep, bench)
    if arguments.workers == 1:
        return JoinedRun(Worker(sweep, queue, share, StopRequest(), arguments.parent))
    name = f"{socket.gethostname()}-{os.getpid()}"
    kept = sweep.paths.workers / f"{name}.yaml"
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole(kept, dump_experiment(as_saved(experiment)))
    workers, stop = arguments.workers, StopRequest()
    _warn_of_threads(sweep, workers)
    return JoinedRun(Parent(sweep, queue, _again(sweep, kept), workers, stop, name))


def _warn_of_threads(sweep: Sweep, workers: int) -> None:
    """Say that the trials of this machine's workers would share cores."""
    threads = asked_threads(sweep) or ResourceSlice(0, workers).threads
    if warning := too_many_threads(threads, workers, usable_cores()):
        print(warning, flush=True)


def _again(sweep: Sweep, file: Path) -> list[str]:
    """The arguments of a worker; `file` was saved, for the user may edit the own one meanwhile."""
    return [str(file), "--run", str(sweep.paths.run)]


@contextmanager
def _reached(sweep: Sweep) -> Iterator[None]:
    """Say in one line that a storage is away for longer than anyone waits."""
    try:
        yield
    except Exception as error:
        if not is_transient(error):
            raise
        where = sweep.config.storage
        raise ValueError(
            f"sweep.storage: {sweep.paths.journal if where == JOURNAL else shown(where)} does not "
            "answer; the study and the trials' checkpoints stay as they are. When it answers "
            "again, the same command goes on"
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
