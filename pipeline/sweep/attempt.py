"""One attempt at a trial, with the part of the machine that it may use."""

import json
import os
import secrets
import socket
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from optuna.trial import Trial, TrialState

from hpo.heartbeat import Lease
from hpo.queue import REASON, ROOT, Queue
from hpo.retry import retry_transient, try_once
from pipeline.experiment import Experiment
from pipeline.processes.run_scripts import Failed, Limits
from pipeline.processes.script_process import ScriptProcess, Watcher
from pipeline.seeds import seeded
from pipeline.sweep.plan import Sweep, asked_threads, trial_experiment
from pipeline.sweep.trial import SeedOutcome, faults_of_the_trial, run_seed, search_curve
from training.run_dir import commit
from utils.cores import usable_cores
from utils.files import read_object, write_whole
from utils.screen import announce

# After this part of a lease without a sign a trial's own process ends; with its grace period that
# is before the lease ends, and so before another worker takes the trial.
_ALIVE = 2 / 3
_GRACE_S = 15.0
# The part of a lease after which the next sign of life is due.
_SIGN = 1 / 9
# With these a trial takes the GPU of its place; a numbered one is the user's own choice.
_ANY_GPU = ("auto", "cuda")


@dataclass(frozen=True)
class ResourceSlice:
    """One worker's part of a machine: which of how many it is, from 0."""

    place: int = 0
    workers: int = 1

    @property
    def threads(self) -> int:
        """CPU threads of each of its trials."""
        return max(1, usable_cores() // self.workers)

    @cached_property
    def environment(self) -> dict[str, str]:
        """Variables of its trials' processes: the GPU that is theirs, where there is one."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            gpus = [name for name in visible.split(",") if name]
        else:
            gpus = [str(number) for number in range(torch.cuda.device_count())]
        return {"CUDA_VISIBLE_DEVICES": gpus[self.place % len(gpus)]} if gpus else {}


class Pruned(Exception):
    """The trial was not promising."""


@dataclass(frozen=True)
class AttemptResult:
    """How an attempt ended; the attributes are written into the trial."""

    state: TrialState
    values: list[float] | None
    attributes: dict[str, Any]


class Attempt(Watcher):
    """One attempt at a trial: it runs every seed, keeps the lease and asks the pruner."""

    def __init__(
        self,
        trial: Trial,
        values: Mapping[str, Any],
        sweep: Sweep,
        queue: Queue,
        share: ResourceSlice,
        lease: Lease,
        *,
        is_ending: Callable[[], bool],
        wait: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """Begin.

        Args:
            trial: Optuna's trial, claimed under the lease.
            values: of the keys of the space.
            sweep: the sweep.
            queue: its trials.
            share: the part of the machine that the trial may use.
            lease: as it stands in the trial.
            is_ending: as in `Watcher`.
            wait: as in `retry_transient`.
            clock: seconds, by which a sign of life is due.
        """
        config = sweep.config
        super().__init__(
            is_ending=is_ending,
            alive_s=_ALIVE * config.lease_s,
            wait_s=config.lease_s + _GRACE_S,
        )
        self._prunes = config.pruner.kind not in ("none", "wilcoxon")
        self.trial, self.sweep, self.share = trial, sweep, share
        self._values, self._queue = values, queue
        self._lease, self._wait, self._clock = lease, wait, clock
        self._signed_s = clock()
        self._outcomes: dict[int, SeedOutcome] = {}
        self._reported: set[int] = set()
        self._anew: list[str] = []

    def run(self) -> AttemptResult:
        """Run every seed of the trial.

        Raises:
            LeaseLost: another worker has it now.
            Interrupted: this process must end.
            OSError: the folder cannot be written, which is no fault of the trial.
        """
        try:
            experiment = self._experiment()
            self._take_folder()
            config = self.sweep.config
            minutes = config.trial_minutes
            limits = Limits(
                minutes and 60 * minutes,
                60 * config.silent_minutes,
                total_hint="sweep.trial_minutes",
                silent_hint="sweep.silent_minutes",
            )
            for place, seed in enumerate(config.seeds):
                self._outcomes[seed] = run_seed(
                    seeded(experiment, seed),
                    config.objectives,
                    self.sweep.paths.seed(self.root, seed),
                    limits,
                    self,
                )
                self._report_seed(place)
        except Failed as failed:
            return AttemptResult(TrialState.FAIL, None, {**self._facts(), REASON: str(failed)})
        except Pruned as pruned:
            return AttemptResult(TrialState.PRUNED, None, {**self._facts(), REASON: str(pruned)})
        values = [self._mean(name) for name in self.sweep.config.objectives]
        return AttemptResult(TrialState.COMPLETE, values, self._facts())

    def sign(self, process: ScriptProcess | None) -> None:
        """Write into the storage and to the process that this trial is watched, where it is due.

        The process hears only what the storage has heard: it must end before the lease does.
        """
        if self._clock() - self._signed_s < _SIGN * self.sweep.config.lease_s:
            return
        if try_once(self._beat) and process is not None:
            process.beat()

    def confirm(self) -> None:
        """Wait until the storage has heard a sign; raises LeaseLost."""
        retry_transient(self._beat, self._wait)

    def search_wrote(self, metrics: Path) -> None:
        """Report the search's validation where a pruner asks; where it is damaged, raise Failed."""
        if self._prunes:
            with faults_of_the_trial():
                curve = search_curve(metrics, "soft")
            self.report(curve)

    def report(self, curve: Mapping[int, float]) -> None:
        """Tell Optuna the search's own validation; raise Pruned where it gives up."""
        for step in sorted(curve.keys() - self._reported):
            if self._gives_up(curve[step], step):
                raise Pruned(f"at search step {step}, at {curve[step]:.4f} bits per byte")

    def _beat(self) -> None:
        self._signed_s = self._clock()
        self._lease = self._lease.next()
        self._queue.beat(self.trial.number, self._lease)

    @property
    def root(self) -> int:
        """The number that names the trial and its folder."""
        return int(self.trial.user_attrs.get(ROOT, self.trial.number))

    def _take_folder(self) -> None:
        """Make the trial's folder, or find it; one of another trial is moved aside.

        Of a trial that another worker began, where this one cannot see its folder, that is said.
        """
        folder = self.sweep.paths.trial(self.root)
        mark = folder / "trial.json"
        identity = {"study": self._queue.study_id, "params": self.trial.params}
        if self.root != self.trial.number and not folder.exists():
            self._anew = [f"the start, since {folder} is not on this machine"]
            announce(f"trial {self.root}: goes on from {self._anew[0]}")
        if folder.exists() and not _says(mark, identity):
            aside = folder.with_name(f"{folder.name}.of-another-{secrets.token_hex(4)}")
            announce(f"{folder}: of another trial, moved to {aside}")
            folder.rename(aside)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(mark, json.dumps(identity, indent=1) + "\n")

    def _experiment(self) -> Experiment:
        try:
            experiment = trial_experiment(self.sweep, self._values, self.share.threads)
        except ValueError as error:
            raise Failed(" ".join(str(error).split())) from None
        if experiment.run.device in _ANY_GPU:
            self.environment = self.share.environment
        return experiment

    def _report_seed(self, place: int) -> None:
        """Tell Optuna a seed's value; raise Pruned where it gives up before the last one."""
        config = self.sweep.config
        if config.pruner.kind != "wilcoxon":
            return
        (name,) = config.objectives
        gives_up = self._gives_up(self._outcomes[config.seeds[place]].objectives[name], place)
        if gives_up and place + 1 < len(config.seeds):
            raise Pruned(f"after {place + 1} of {len(config.seeds)} seeds")

    def _gives_up(self, value: float, step: int) -> bool:
        """What the pruner says; it is not asked while the storage is away."""
        answers: list[bool] = []
        if try_once(lambda: answers.append(self._queue.is_pruned_at(self.trial, value, step))):
            self._reported.add(step)
        return any(answers)

    def _mean(self, name: str) -> float:
        return statistics.fmean(outcome.objectives[name] for outcome in self._outcomes.values())

    def _facts(self) -> dict[str, Any]:
        """What the table says of this attempt: where it ran, and what each seed came to."""
        names = self.sweep.config.objectives
        runs = {
            str(seed): {
                "values": [outcome.objectives[name] for name in names],
                **outcome.facts,
                "architecture": outcome.architecture,
            }
            for seed, outcome in self._outcomes.items()
        }
        return {
            "host": socket.gethostname(),
            "gpu": self.environment.get("CUDA_VISIBLE_DEVICES"),
            "torch": torch.__version__,
            "commit": commit(),
            "threads": asked_threads(self.sweep) or self.share.threads,
            "went_on_from": self._anew,
            "runs": runs,
        }


def _says(mark: Path, identity: Mapping[str, Any]) -> bool:
    try:
        return read_object(mark, "") == identity
    except (FileNotFoundError, ValueError):
        return False
