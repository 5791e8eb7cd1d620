"""Several runs of scripts at a time, each in a process of its own that saves its state."""

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from pipeline.experiment import Experiment, with_settings
from pipeline.resources import too_many_threads
from pipeline.sweep.process import TrialProcess
from pipeline.sweep.trial import Around, Interrupted, Limits, run_scripts
from training.signals import Stopped, StopRequest
from utils.cores import usable_cores

_SILENT_S = 24 * 3600.0
_ALIVE_S, _WAIT_S = 60.0, 75.0


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        name: how it is called where it fails.
        experiment: with its seed.
        scripts: names of the scripts, in order.
        folder: the run directory.
    """

    name: str
    experiment: Experiment
    scripts: Sequence[str]
    folder: Path


def run_all(
    jobs: Sequence[Job], *, workers: int, stop: StopRequest, done: Callable[[Job], None]
) -> None:
    """Run all jobs, so many at a time, each with its share of the cores unless it says otherwise.

    Args:
        jobs: in the order in which they start.
        workers: runs at a time.
        stop: asked for by a signal: every run then saves its state.
        done: called after each job, from several threads.

    Raises:
        ValueError: a run failed; those that had begun have gone on to their end.
        Stopped: a signal came.
    """
    cores = usable_cores()
    threads = max(1, cores // workers)
    asked = max((job.experiment.run.threads or threads for job in jobs), default=threads)
    if warning := too_many_threads(asked, min(workers, len(jobs)), cores):
        print(warning, flush=True)
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(_run, job, threads, stop, done) for job in jobs]
        _, rest = wait(futures, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
    if stop.number is not None:
        raise Stopped(stop.number)
    for job, future in zip(jobs, futures, strict=True):
        error = None if future.cancelled() else future.exception()
        if error is not None:
            raise ValueError(f"{job.name}: {error}")


def _run(job: Job, threads: int, stop: StopRequest, done: Callable[[Job], None]) -> None:
    def alive(process: TrialProcess | None) -> None:
        if stop.number is not None:
            if process is not None:
                process.stop()
            raise Interrupted
        if process is not None:
            process.beat()

    around = Around(
        environment={},
        alive=alive,
        curve=None,
        again=lambda: None,
        alive_s=_ALIVE_S,
        wait_s=_WAIT_S,
    )
    if stop.number is None:
        own = job.experiment.run.threads
        settings = {"run.figures": False, "run.threads": own or threads, "derive.gap": False}
        experiment = with_settings(job.experiment, settings)
        run_scripts(experiment, job.scripts, job.folder, Limits(None, _SILENT_S), around)
        done(job)
