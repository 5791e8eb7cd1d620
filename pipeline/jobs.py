"""Runs of verbs in processes of their own, so many at a time."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from pipeline.cli import DIVERGED, OUT_OF_MEMORY
from pipeline.devices import share_of_gpus
from pipeline.experiment import Experiment, dump_experiment, with_settings
from pipeline.run_files import layout_name
from training.run_dir import locked
from training.signals import Diverged, Lost, Stopped, StopRequest
from utils.cores import share_of_threads
from utils.files import write_whole
from utils.screen import announce
from utils.text import duration

# Of a whole run, in their order.
SCRIPTS = ("search", "derive", "retrain")
_PROGRAM = Path(__file__).resolve().parents[1]
_CHILD = (sys.executable, "-P", "-m", "pipeline.jobs")
_START = "--- scripts"  # begins the line that a process writes before anything else
# Not the name of the lock that the run's own process takes.
_LOCK = "job.lock"
_POLL_S, _GRACE_S = 0.2, 60.0


class Failed(Exception):
    """The run failed for a reason of its own; `code` is its process's exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code

    @property
    def diverged(self) -> bool:
        """Whether its loss was no number; where memory ran out nothing is known of the loss."""
        return self.code == DIVERGED and OUT_OF_MEMORY not in str(self)


def _reason(code: int, log: Path) -> str:
    """Reason of a failure, in one line: the last one that its process wrote."""
    if code == -signal.SIGKILL:
        return "killed from outside (SIGKILL), as the system does where memory runs out"
    text = log.read_text(encoding="utf-8", errors="replace").rpartition(_START)[2]
    *_, last = ["its log is empty", *filter(str.strip, text.splitlines()[1:])]
    ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    return f"{ended}: {last.strip()[:500]}"


@dataclass(frozen=True)
class Job:
    """One run: scripts in their order, in a run directory; the name is for messages.

    With `arguments`, which then say the run directory, `folder` holds the process's log alone, and
    the experiment stays as it is, threads included: what is trained is another command's own.
    """

    name: str
    experiment: Experiment
    scripts: Sequence[str]
    folder: Path
    arguments: tuple[str, ...] = ()


def run_job(job: Job, stop: StopRequest, environment: Mapping[str, str]) -> None:
    """Run the scripts of a job one after another in a process, with more in its environment.

    Raises:
        Failed: a script ended with an error.
        Stopped: this process was asked to end; the run has saved its state.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    file, log = job.folder / "experiment.yaml", job.folder / "job.log"
    choice = job.folder / "architecture.json"
    settings = {} if job.arguments else {"run.figures": False, "derive.gap": False}
    text = dump_experiment(with_settings(job.experiment, settings))
    scripts = list(job.scripts)
    if "derive" in scripts and choice.exists():
        # What was chosen stays: by a budget of time it would be measured again, and may be another.
        if file.exists() and file.read_text(encoding="utf-8") == text:
            scripts.remove("derive")
        else:
            choice.unlink()
    if not scripts:
        return
    write_whole(file, text)
    arguments = job.arguments or ("--run", str(job.folder))
    path = os.pathsep.join([str(_PROGRAM), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*_CHILD, ",".join(scripts), str(file), *arguments],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, **own},
            start_new_session=True,
        )
    try:
        while (code := process.poll()) is None:
            if stop.number is not None:
                # It saves a checkpoint; below it ends at once, with all that it started.
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_S)
                raise Stopped(stop.number)
            time.sleep(_POLL_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise Failed(_reason(code, log), code)


class Countdown:
    """How many of so many runs are done, and about how long the others take.

    `workers` run at a time; the one that began first ends first. A run's work is in any unit.
    """

    def __init__(
        self, runs: int, workers: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._done, self._work, self._spent_s, self._began_s = 0, 0.0, 0.0, [clock()] * workers
        self.expect(runs, runs)

    def expect(self, runs: int, work: float) -> None:
        """From now on so many runs, and so much work, are to come."""
        self._rest, self._rest_work = runs, work

    def leave_out(self, runs: int, work: float = 1.0) -> None:
        """So many of those to come, of so much work each, were done earlier."""
        self.expect(self._rest - runs, self._rest_work - runs * work)

    def line(self, words: str, work: float = 1.0) -> str:
        """The words about a run that is done, between its number and the time that is left."""
        with self._lock:
            self._done, self._work, now_s = self._done + 1, self._work + work, self._clock()
            self.leave_out(1, work)
            self._spent_s += now_s - self._began_s.pop(0)
            self._began_s.append(now_s)
            beside = self._began_s[: self._rest]
            left_s = self._spent_s / self._work * self._rest_work - sum(now_s - s for s in beside)
            left_s /= max(1, len(beside))
            left = f"; about {duration(left_s)} left" if self._rest and left_s >= 1 else ""
            return f"[{self._done}/{self._done + self._rest}] {words}{left}"


def run_all(
    jobs: Sequence[Job],
    *,
    workers: int,
    stop: StopRequest,
    done: Callable[[Job], None],
    diverged: Callable[[Job, str], None] | None = None,
) -> None:
    """Run jobs in order, so many at a time, each with `share_of_threads` unless it says.

    `done` is called after each, from several threads, and `diverged`, with its last words, after
    one whose loss was no number. Where `stop` is asked for, every run saves its state.

    Raises:
        ValueError: another command has one of these runs, or a run failed; those that had begun
            have gone on to their end.
        Diverged: so, where one diverged and that is no result, or ran out of memory.
        Lost: so, where one was killed from outside.
        Stopped: a signal came.
    """
    threads = share_of_threads(workers)
    places = SimpleQueue[int]()
    for place in range(workers):
        places.put(place)
    with ExitStack() as held, ThreadPoolExecutor(workers) as pool:
        for job in jobs:  # all of them before any begins, so that of two commands one goes on
            job.folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(job.folder, _LOCK))
        futures = [pool.submit(_run, job, threads, places, stop, done, diverged) for job in jobs]
        _, rest = wait(futures, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
    if stop.number is not None:
        raise Stopped(stop.number)
    for job, future in zip(jobs, futures, strict=True):
        error = None if future.cancelled() else future.exception()
        if error is not None:
            code = error.code if isinstance(error, Failed) else 0
            kind = Lost if code < 0 else Diverged if code == DIVERGED else ValueError
            raise kind(f"{job.name}: {error}")


def _run(
    job: Job,
    threads: int,
    places: SimpleQueue[int],
    stop: StopRequest,
    done: Callable[[Job], None],
    diverged: Callable[[Job, str], None] | None,
) -> None:
    if stop.number is not None:
        return
    environment, place = {"OMP_NUM_THREADS": str(threads)}, places.get()
    gpu = share_of_gpus(place)
    # A numbered GPU is the user's own choice.
    if gpu is not None and job.experiment.run.device in ("auto", "cuda"):
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        run_job(job, stop, environment)
    except Failed as failed:
        if not failed.diverged or diverged is None:
            raise
        diverged(job, str(failed))
    else:
        done(job)
    finally:
        places.put(place)


def run_counted(jobs: Sequence[Job], workers: int) -> None:
    """`run_all`, with a line on the screen after each run; a signal stops them."""
    announce(f"{len(jobs)} trainings, {workers} at a time; details in the log of each")
    countdown = Countdown(len(jobs), workers)
    with StopRequest().listening() as stop:
        run_all(
            jobs,
            workers=workers,
            stop=stop,
            done=lambda job: announce(countdown.line(f"trained {job.name}")),
        )


def layout_job(experiment: Experiment, letters: str, seed: int, folder: Path) -> Job:
    """Train a layout alone, as retrain.py does, in `folder/LAYOUT/seed-N`.

    As it is: a budget would be measured anew for each layout, beside other trainings, and filled.
    """
    settings = {"run.seed": seed, "derive.method": "layout", "derive.layout": letters}
    return Job(
        f"{letters}, seed {seed}",
        with_settings(experiment, settings, ["derive.budget", "derive.fill"]),
        ("derive", "retrain"),
        folder / layout_name(letters) / f"seed-{seed}",
    )


def training_result(job: Job) -> Path | None:
    """The result.json of a layout's training; None before its end."""
    return min(job.folder.glob("retrain/*/seed-*/result.json"), default=None)


def main(arguments: Sequence[str]) -> int:
    """Run scripts, named with commas, in turn; the exit code of the first that fails."""
    scripts, *rest = arguments
    threading.Thread(target=_end_with_starter, daemon=True).start()
    print(_START, scripts, flush=True)
    for script in scripts.split(","):
        # The scripts name themselves in what they print.
        sys.argv = [str(_PROGRAM / f"{script}.py"), *rest]
        code: int = importlib.import_module(script).main(rest)
        sys.stdout.flush()
        if code:
            return code
    return 0


def _end_with_starter() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
