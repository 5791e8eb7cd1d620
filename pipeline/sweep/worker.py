"""A worker of a sweep: a process that runs trials one after another, each in its own folder.

A trial is a run of every seed, by the functions of the verbs.
"""

import os
import signal
import socket
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import optuna

from hpo.study import (
    NUMBER,
    REASON,
    finished_before,
    number_of,
    reached,
    set_aside,
    wait_for_a_trial,
)
from model import Architecture
from pipeline.derive import choose, derivation
from pipeline.experiment import Experiment, dump_experiment
from pipeline.experiment_sweep import shown_values
from pipeline.layout_scores import seeded
from pipeline.plan import set_up
from pipeline.retrain import copy_chosen, find_architecture, retrain_all
from pipeline.search import finish_searches, search_trainer
from pipeline.sweep.plan import Sweep, join_study, trial_experiment
from training.run_dir import locked
from training.signals import Diverged, Lost, Stopped, StopRequest
from utils.files import read_object, words_of, write_whole
from utils.screen import announce

# Exit code of a worker that nothing is left for, and of one for which a second one would not help.
DONE, USELESS = 0, 2
# The first word of a run in its trial's log, of which the sweep shows that line.
BEGINS = "begins"
_POLL_S = 1.0


def work(sweep: Sweep, inputs: dict[str, str], gpu: str | None, threads: int) -> None:
    """Run trials until none is left; the body of a worker's process, which exits with its code."""
    os.setpgrp()  # Ctrl-C is for the parent, which asks for an end once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # A numbered GPU is the user's own choice.
    if gpu is not None and sweep.experiment.run.device in ("auto", "cuda"):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        with reached(sweep.storage), StopRequest().listening() as stop:
            study = join_study(sweep, inputs)
            objective = TrialObjective(sweep, stop, threads)
            while wait_for_a_trial(study, lambda: stop.number is not None):
                run_one(study, objective)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        sys.exit(USELESS)
    except KeyboardInterrupt:
        pass  # asked a second time
    sys.exit(DONE)


def run_one(study: optuna.Study, objective: Callable[[optuna.Trial], list[float]]) -> None:
    """Run the next trial; one that was taken for dead while it ran does not count.

    So it is where the machine slept. Who runs it again waits for this process, and finds what it
    has trained.
    """
    begun = list[int]()

    def noted(trial: optuna.Trial) -> list[float]:
        begun.append(trial.number)
        return objective(trial)

    try:
        study.optimize(noted, n_trials=1, catch=(Exception,))
    except (ValueError, AssertionError):  # by Optuna, which cannot end what has ended
        if not any(study.trials[number].state.is_finished() for number in begun):
            raise


def _end_with_parent() -> None:
    """Stop as after Ctrl-C, with a checkpoint, once the process that started this one is gone."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


class TrialFailed(Exception):
    """The trial failed for a reason of its own."""


@dataclass(frozen=True)
class TrialObjective:
    """Objective function: search, derive and retrain with a trial's values, for every seed."""

    sweep: Sweep
    stop: StopRequest
    threads: int

    def __call__(self, trial: optuna.Trial) -> list[float]:
        """Run the trial; its objectives, each the mean over seeds.

        Raises:
            TrialFailed, TrialPruned: how else it ended; the reason stands in its attributes.
            SystemExit: this process was asked to stop, or its disk failed it, and the trial waits
                for another one.
        """
        if NUMBER not in trial.user_attrs:
            raise TrialFailed("surplus: two workers asked for the last trial")
        trial.set_user_attr("host", socket.gethostname())
        folder = self.sweep.trial(int(trial.user_attrs[NUMBER]))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _output_to(folder / "trial.log"):
                values = self.sweep.space.suggest(trial)
                if (same := finished_before(trial)) is not None:
                    trial.set_user_attr("runs", same.user_attrs["runs"])
                    trial.set_user_attr(REASON, f"as trial {number_of(same)}")
                    return same.values
                self._wait_for(folder)
                with locked(folder):
                    return self._run_seeds(trial, values, folder)
        except (Stopped, KeyboardInterrupt):
            set_aside(trial)
            raise SystemExit(DONE) from None
        except OSError as error:
            # Where a disk is full for one trial it is for the next, until all have failed.
            set_aside(trial)
            print(error, file=sys.stderr, flush=True)
            raise SystemExit(USELESS) from None
        except Exception as error:
            trial.set_user_attr(REASON, _reason(error))
            raise

    def _wait_for(self, folder: Path) -> None:
        """Wait while a worker that was taken for dead has the trial's folder."""
        while True:
            _go_on(self.stop)
            with suppress(ValueError), locked(folder):
                return
            time.sleep(_POLL_S)

    def _run_seeds(
        self, trial: optuna.Trial, values: Mapping[str, Any], folder: Path
    ) -> list[float]:
        config = self.sweep.config
        experiment = trial_experiment(self.sweep, values, self.threads)
        pruned = None if config.pruner.kind == "none" else trial
        runs: dict[str, dict[str, Any]] = {}
        for seed in config.seeds:
            run, one = folder / f"seed-{seed}", seeded(experiment, seed)
            announce(f"{BEGINS} with {shown_values({'run.seed': seed, **values})}")
            found, architecture = run_seed(one, run, self.stop, pruned)
            scores = [found[name] for name in config.objectives]
            runs[str(seed)] = {"values": scores, "architecture": architecture.to_json()}
            trial.set_user_attr("runs", runs)
        by_objective = zip(*(run["values"] for run in runs.values()), strict=True)
        return [statistics.fmean(each) for each in by_objective]


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Write what a trial prints to its own log, the traceback of its error too."""
    with path.open("a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        try:
            yield
        except Exception:
            traceback.print_exc()
            raise


def _reason(error: Exception) -> str:
    """Reason of a trial without a value, in one line."""
    if isinstance(error, ValueError | OSError):
        words = words_of(error)
    elif isinstance(error, TrialFailed | Diverged | Lost | optuna.TrialPruned):
        words = str(error)
    else:
        words = f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:300]


def run_seed(
    experiment: Experiment, run: Path, stop: StopRequest, pruned: optuna.Trial | None
) -> tuple[dict[str, float], Architecture]:
    """Search, where the experiment does, derive and retrain in the run folder `run`.

    Returns all objectives by name, and what was derived. A run that was begun there goes on. `stop`
    is asked between two phases; a training has one of its own. The trial `pruned` hears of the
    retraining's validations.

    Raises:
        Stopped: this process was asked to end; the state is saved.
        TrialPruned: the pruner gives the trial up.
        ValueError, OSError, Diverged: the trial failed.
    """
    run.mkdir(parents=True, exist_ok=True)
    write_whole(run / "experiment.yaml", dump_experiment(experiment))
    plan = set_up(experiment, run)
    if losses := plan.prepared.tokenizer.losses:
        raise TrialFailed(f"data.tokenizer: no bits per byte to compare: {'; '.join(losses)}")
    if experiment.has_search:
        with closing(search_trainer(plan)) as trainer:
            trainer.open()
            trainer.run(plan.experiment.run)
        finish_searches(plan, [plan.seed])
        _go_on(stop)
    derived = derivation(plan, experiment.derive)
    choose(derived, experiment, run)
    _go_on(stop)
    architecture = find_architecture(plan, None, None)
    costs = architecture.costs
    assert costs is not None, "a derivation writes them"
    heard = [] if pruned is None else [lambda step: Pruning(pruned)]
    (result,) = retrain_all([(plan, architecture)], trackers=heard)
    copy_chosen(result, run)
    values = {
        "retrained": read_object(result)["valid"]["bits_per_byte"],
        "flops": costs.flops_per_token,
        "parameters": float(costs.parameters),
    }
    return values, architecture


def _go_on(stop: StopRequest) -> None:
    if stop.number is not None:
        raise Stopped(stop.number)


@dataclass(frozen=True)
class Pruning:
    """A tracker of a training that reports its validations to Optuna, which keeps them."""

    trial: optuna.Trial

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Report a validation; raise TrialPruned where the pruner gives the trial up."""
        if (bits := values.get("valid_model/bits_per_byte")) is None:
            return
        self.trial.report(bits, step)
        if self.trial.should_prune():
            raise optuna.TrialPruned(f"at step {step}, at {bits:.4f} bits per byte")

    def close(self) -> None:
        """Nothing is held back."""
