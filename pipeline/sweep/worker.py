"""A worker of a sweep: a process that runs trials one after another, each in its own folder."""

import os
import signal
import socket
import statistics
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import optuna
import torch

from hpo.study import NUMBER, REASON, set_aside, wait_for_a_trial
from pipeline.sweep.plan import Sweep, trial_experiment
from pipeline.sweep.study import STORAGE_ERRORS, join_study, storage_problem
from pipeline.sweep.trial import run_seed
from pipeline.trainings import seeded
from training.run_dir import commit
from training.signals import Diverged, Stopped, StopRequest
from utils.cores import usable_cores
from utils.files import words_of

# Exit code of a worker that nothing is left for, and of one for which a second one would not help.
DONE, USELESS = 0, 2


def share_of_threads(workers: int) -> int:
    """CPU threads of each trial: what OMP_NUM_THREADS says, else a worker's share of the cores."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() else max(1, usable_cores() // workers)


def work(sweep: Sweep, inputs: dict[str, str], gpu: str | None, threads: int) -> None:
    """Run trials until none is left; the body of a worker's process, which exits with its code."""
    os.setpgrp()  # Ctrl-C is for the parent, which asks for an end once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # A numbered GPU is the user's own choice.
    if gpu is not None and sweep.experiment.run.device in ("auto", "cuda"):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        with StopRequest().listening() as stop:
            study = join_study(sweep, inputs)
            objective = Objective(sweep, stop, gpu, threads)
            while wait_for_a_trial(study, lambda: stop.number is not None):
                study.optimize(objective, n_trials=1, catch=(Exception,))
    except (*STORAGE_ERRORS, ValueError, OSError) as error:
        problem = storage_problem(sweep, error) if isinstance(error, STORAGE_ERRORS) else error
        print(problem, file=sys.stderr, flush=True)
        sys.exit(USELESS)
    except KeyboardInterrupt:
        pass  # asked a second time
    sys.exit(DONE)


def _end_with_parent() -> None:
    """Stop as after Ctrl-C, with a checkpoint, once the process that started this one is gone."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


class Failed(Exception):
    """The trial failed for a reason of its own."""


@dataclass(frozen=True)
class Objective:
    """Objective function: search, derive and retrain with a trial's values, for every seed."""

    sweep: Sweep
    stop: StopRequest
    gpu: str | None
    threads: int

    def __call__(self, trial: optuna.Trial) -> list[float]:
        """Run the trial; its objectives, each the mean over seeds.

        Raises:
            Failed, TrialPruned: how else it ended; the reason stands in its attributes.
            SystemExit: this process was asked to stop, and the trial waits for another one.
        """
        if trial.user_attrs.get(NUMBER) is None:
            raise Failed("surplus: two workers asked for the last trial")
        facts: dict[str, Any] = {"host": socket.gethostname(), "gpu": self.gpu, "runs": {}}
        facts |= {"threads": self.threads, "torch": torch.__version__, "commit": commit()}
        for name, value in facts.items():
            trial.set_user_attr(name, value)
        folder = self.sweep.paths.trial(int(trial.user_attrs[NUMBER]))
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with _output_to(folder / "trial.log"), _at_most(self.sweep.config.trial_minutes):
                return self._run_seeds(trial, folder)
        except (Stopped, KeyboardInterrupt):
            set_aside(trial)
            raise SystemExit(DONE) from None
        except Exception as error:
            trial.set_user_attr(REASON, _reason(error))
            raise

    def _run_seeds(self, trial: optuna.Trial, folder: Path) -> list[float]:
        config, pruner = self.sweep.config, self.sweep.config.pruner.kind
        experiment = trial_experiment(self.sweep, self.sweep.space.suggest(trial), self.threads)
        runs: dict[str, dict[str, Any]] = {}
        for place, seed in enumerate(config.seeds):
            outcome = run_seed(
                seeded(experiment, seed),
                config.objectives,
                self.sweep.paths.seed(int(folder.name), seed),
                self.stop,
                trial if pruner not in ("none", "wilcoxon") else None,
            )
            values = [outcome.objectives[name] for name in config.objectives]
            runs[str(seed)] = {"values": values, **outcome.facts}
            trial.set_user_attr("runs", runs)
            if pruner == "wilcoxon":
                trial.report(values[0], place)
                if trial.should_prune() and place + 1 < len(config.seeds):
                    raise optuna.TrialPruned(f"after {place + 1} of {len(config.seeds)} seeds")
        by_objective = zip(*(run["values"] for run in runs.values()), strict=True)
        return [statistics.fmean(values) for values in by_objective]


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Write what a trial prints to its own log, the traceback of its error too."""
    with path.open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            yield
        except Exception:
            traceback.print_exc()
            raise


@contextmanager
def _at_most(minutes: float | None) -> Iterator[None]:
    """End what takes longer with Failed."""
    if minutes is None:
        yield
        return

    def late(number: int, frame: object) -> None:
        raise Failed(f"not done after {minutes:g} minutes (sweep.trial_minutes)")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _reason(error: Exception) -> str:
    """Reason of a trial without a value, in one line."""
    if isinstance(error, ValueError | OSError):
        words = words_of(error)
    elif isinstance(error, Failed | Diverged | optuna.TrialPruned):
        words = str(error)
    else:
        words = f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:300]
