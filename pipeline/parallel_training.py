"""Trainings of a comparison in processes of their own, several at a time."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from pipeline.context import RunPlan, as_saved
from pipeline.experiment import dump_experiment
from pipeline.resources import too_many_threads
from training.console import announce
from training.signals import Stopped, StopRequest
from utils.cores import usable_cores
from utils.files import write_whole

_SCRIPT = Path(__file__).resolve().parents[1] / "retrain.py"
_POLL_S = 0.2


@dataclass(frozen=True)
class Training:
    """An architecture's file that is trained with a seed; the name is for messages."""

    name: str
    architecture: Path
    seed: int


def train_in_processes(plan: RunPlan, trainings: Sequence[Training], jobs: int) -> None:
    """Train so many at a time as retrain.py does, each with its share of the cores.

    They train in the run's own folders, so what is done already takes no step, and whatever is
    missing afterwards can be trained here. At a signal all save their state.

    Raises:
        ValueError: a training failed; those that had begun have gone on to their end.
        Stopped: a signal came.
        OSError: the run folder cannot be written.
    """
    cores = usable_cores()
    threads = plan.experiment.run.threads or max(1, cores // jobs)
    if warning := too_many_threads(threads, min(jobs, len(trainings)), cores):
        announce(warning)
    folder = plan.run_dir / "architectures"
    folder.mkdir(parents=True, exist_ok=True)
    experiment = folder / "experiment.yaml"
    write_whole(experiment, dump_experiment(as_saved(plan.experiment)))
    stop = StopRequest()
    with ExitStack() as at_the_end:
        at_the_end.enter_context(stop.listening())

        def start(training: Training) -> _Process:
            # A file and no pipe, which would fill and make it wait.
            log = at_the_end.enter_context(TemporaryFile("w+", encoding="utf-8", errors="replace"))
            process = _Process(training, plan.run_dir, experiment, threads, log)
            at_the_end.callback(process.end)
            return process

        failure = _run(trainings, jobs, start, stop)
    if stop.number is not None:
        raise Stopped(stop.number)
    if failure is not None:
        raise ValueError(failure)


def _run(
    trainings: Sequence[Training],
    jobs: int,
    start: Callable[[Training], "_Process"],
    stop: StopRequest,
) -> str | None:
    """Keep so many running until all are done, one failed or a signal came; the first failure."""
    waiting, running, failed = list(trainings), list[_Process](), list[str]()
    while running or (waiting and not failed and stop.number is None):
        if stop.number is not None:
            for process in running:
                process.stop()
        elif not failed:
            while waiting and len(running) < jobs:
                training = waiting.pop(0)
                announce(f"training {training.name}, seed {training.seed}, in its own process")
                running.append(start(training))
        failed += [words for process in running if (words := process.failure()) is not None]
        running = [process for process in running if process.runs]
        time.sleep(_POLL_S)
    return failed[0] if failed else None


class _Process:
    """retrain.py for one training; what it says on stderr is kept for a failure."""

    def __init__(
        self, training: Training, run_dir: Path, experiment: Path, threads: int, log: IO[str]
    ) -> None:
        self._training, self._log, self._asked = training, log, False
        settings = [f"run.seed={training.seed}", f"run.threads={threads}"]
        command = [sys.executable, str(_SCRIPT), str(experiment), "--run", str(run_dir)]
        command += ["--architecture", str(training.architecture)]
        command += [part for setting in settings for part in ("--set", setting)]
        # In a session of its own: a Ctrl-C at the terminal comes to it once, from here.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Ask it once to save its state and end."""
        if not self._asked and self.runs:
            self._asked = True
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Stop it and wait until it has."""
        self.stop()
        self._process.wait()

    def failure(self) -> str | None:
        """Why it ended, where that is a failure; None while it runs and where it is done."""
        code = self._process.poll()
        if not code or self._asked:
            return None
        self._log.seek(0)
        lines = self._log.read().splitlines() or [f"exit code {code}"]
        return f"{self._training.name}, seed {self._training.seed}: {lines[-1]}"
