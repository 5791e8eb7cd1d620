"""One trial: search, derive, retrain for each of its seeds, watched from outside."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from assembly.sweeping.child import LEFT_ALONE
from assembly.sweeping.outcome import (
    CHOSEN,
    METRICS,
    Found,
    phase_folders,
    read_outcome,
    reason_of,
    search_curve,
    search_folder,
)
from assembly.sweeping.process import FolderBusy, TrialProcess
from experiment import Experiment, dump_experiment
from utils.files import words_of, write_whole

SCRIPTS = ("search", "derive", "retrain")
_POLL_S = 0.2
# A process that ended with one of these was asked to, and can go on.
_FROM_OUTSIDE = {LEFT_ALONE, 130, 143, -signal.SIGINT, -signal.SIGTERM}
_MOST_STARTS = 10


class Failed(Exception):
    """The trial failed for a reason of its own."""


class Pruned(Exception):
    """The trial was not promising."""


class Interrupted(Exception):
    """This worker was asked to stop; the trial's process has saved its state."""


@dataclass
class Limits:
    """When a trial counts as hanging, in seconds by this process's own clock.

    Attributes:
        trial_s: from the making of these limits on, whatever the trial says; None: for ever.
        silent_s: without a change of its files.
        clock: the seconds.
    """

    trial_s: float | None
    silent_s: float
    clock: Callable[[], float] = time.monotonic
    _began_s: float = field(init=False)
    _changed_s: float = field(init=False)
    _seen: object = None

    def __post_init__(self) -> None:
        self._began_s = self._changed_s = self.clock()

    def broken(self, files: Sequence[Path]) -> str | None:
        """Which limit is broken, in words; the first call begins the time of silence.

        Args:
            files: what a run that goes on writes to. By name: whoever looks for them below a run's
                folder meets folders that the run renames or removes at that moment.
        """
        now = self.clock()
        # Changes are seen, and no clock of a file server is believed.
        seen = [_size_and_time(path) for path in files]
        if seen != self._seen:
            self._seen, self._changed_s = seen, now
        if self.trial_s is not None and now - self._began_s > self.trial_s:
            return f"not done after {self.trial_s / 60:g} minutes (sweep.trial_minutes)"
        if now - self._changed_s > self.silent_s:
            return f"silent for {self.silent_s / 60:g} minutes (sweep.silent_minutes)"
        return None


@dataclass(frozen=True)
class Around:
    """What a trial's run needs from its worker.

    Attributes:
        environment: variables of its process, e.g. its GPU.
        alive: called several times a second, with the process once there is one; raises where
            the trial must end.
        curve: called with the search's validation as it grows, by step; raises Pruned.
        again: called before a process that was ended from outside is started once more; returns
            once the trial is known to be still this worker's.
        alive_s: the process ends by itself when its worker gave no sign for so long.
        wait_s: how long a dead worker's process may still hold the folder.
    """

    environment: Mapping[str, str]
    alive: Callable[[TrialProcess | None], None]
    curve: Callable[[Mapping[int, float]], None] | None
    again: Callable[[], None]
    alive_s: float
    wait_s: float


def run_seed(
    experiment: Experiment, objectives: Sequence[str], run: Path, limits: Limits, around: Around
) -> Found:
    """Run the phases of one seed in a process of its own and read what they came to.

    Args:
        experiment: with its seed.
        objectives: what is read; without `retrained` nothing is retrained.
        run: the run directory.
        limits: when it counts as hanging.
        around: its worker.

    Raises:
        Failed, Pruned, Interrupted: how else it ended; no process of it is left.
        OSError: the folder cannot be written, which is no fault of the trial.
    """
    scripts = SCRIPTS if "retrained" in objectives else SCRIPTS[:2]
    run_scripts(experiment, scripts, run, limits, around)
    with _files_of_the_trial():
        return read_outcome(run, experiment.run.seed, objectives)


def run_scripts(
    experiment: Experiment, scripts: Sequence[str], run: Path, limits: Limits, around: Around
) -> None:
    """Run scripts one after another in a process of their own.

    Args:
        experiment: with its seed.
        scripts: names of scripts that take an experiment and `--run`.
        run: the run directory.
        limits: when it counts as hanging.
        around: its worker.

    Raises:
        Failed, Pruned, Interrupted: how else it ended; no process of it is left.
        OSError: the folder cannot be written, which is no fault of the trial.
    """
    run.mkdir(parents=True, exist_ok=True)
    path = run / "experiment.yaml"
    write_whole(path, dump_experiment(experiment))
    arguments = ["--alive-s", str(around.alive_s), str(path), "--run", str(run)]
    arguments += ["--scripts", *scripts]
    seed = experiment.run.seed
    for _ in range(_MOST_STARTS):
        code, log = _once(run, seed, arguments, limits, around)
        if code not in _FROM_OUTSIDE:
            break
        # Where this worker was stopped too, this raises Interrupted.
        around.alive(None)
        around.again()
    if code:
        raise Failed(reason_of(code, log))


def _once(
    run: Path, seed: int, arguments: Sequence[str], limits: Limits, around: Around
) -> tuple[int, Path]:
    """Run one process to its end: its exit code and its log."""
    try:
        process = TrialProcess(
            run,
            arguments,
            around.environment,
            wait_s=around.wait_s,
            meanwhile=lambda: around.alive(None),
        )
    except FolderBusy:
        raise Failed(f"{run}: another process still trains here") from None
    try:
        return _watch(process, run, seed, limits, around), process.log
    except BaseException:
        process.kill()
        raise


def _watch(process: TrialProcess, run: Path, seed: int, limits: Limits, around: Around) -> int:
    """Poll a process to its end; its exit code."""
    metrics = search_folder(run, seed) / METRICS
    curve_state, chosen_state = None, None
    folders = phase_folders(run, seed)
    while (code := process.poll()) is None:
        around.alive(process)
        if around.curve is not None and curve_state != (curve_state := _size_and_time(metrics)):
            with _files_of_the_trial():
                curve = search_curve(run, seed, "soft")
            around.curve(curve)
        if chosen_state != (chosen_state := _size_and_time(run / CHOSEN)):
            folders = phase_folders(run, seed)
        if words := limits.broken([process.log, *(folder / METRICS for folder in folders)]):
            process.show_stacks()
            raise Failed(f"{words}; trial.log ends with where it was")
        time.sleep(_POLL_S)
    return code


@contextmanager
def _files_of_the_trial() -> Iterator[None]:
    """Let what is wrong with the files that a trial wrote fail this trial, and not its worker."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Failed(words_of(error)) from None


def _size_and_time(path: Path) -> tuple[int, int] | None:
    """A file's size and time of change; None where it is not there, or not any more."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
