"""One attempt at a trial, with the part of the machine that it may use."""

import json
import os
import secrets
import socket
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from hpo.queue import REASON, ROOT, LeaseLost, Queue
from hpo.retry import try_once
from pipeline.experiment import Experiment
from pipeline.sweep.plan import Sweep, asked_threads, trial_experiment
from pipeline.sweep.process import TrialProcess
from pipeline.sweep.trial import Around, Failed, Found, Limits, Pruned, run_seed
from training.run_dir import commit
from utils.cores import usable_cores
from utils.files import read_object, write_whole

# After this part of a lease without a sign a trial's own process ends; with its grace period that
# is before the lease ends, and so before another worker takes the trial.
_ALIVE = 2 / 3
_GRACE_S = 15.0
# With these a trial takes the GPU of its worker; a numbered one is the user's own choice.
_ANY_GPU = ("auto", "cuda")


@dataclass(frozen=True)
class ResourceSlice:
    """One worker's part of a machine.

    Attributes:
        place: which of the workers that share the machine, from 0.
        workers: how many share it.
    """

    place: int = 0
    workers: int = 1

    @property
    def threads(self) -> int:
        """CPU threads of each of its trials."""
        return max(1, usable_cores() // self.workers)

    @cached_property
    def environment(self) -> dict[str, str]:
        """Variables of its trials' processes: the GPU that is theirs, where there is one."""
        there = os.environ.get("CUDA_VISIBLE_DEVICES")
        if there is not None:
            gpus = [name for name in there.split(",") if name]
        else:
            gpus = [str(number) for number in range(torch.cuda.device_count())]
        return {"CUDA_VISIBLE_DEVICES": gpus[self.place % len(gpus)]} if gpus else {}

    def facts(self) -> dict[str, Any]:
        """What is recorded of it with each trial."""
        return {
            "host": socket.gethostname(),
            "gpu": self.environment.get("CUDA_VISIBLE_DEVICES"),
            "torch": torch.__version__,
            "commit": commit(),
        }


def parse_share(text: str) -> ResourceSlice:
    """A share from `I/N`.

    Raises:
        ValueError: it is none.
    """
    place, _, workers = text.partition("/")
    if not (place.isdecimal() and workers.isdecimal() and int(place) < int(workers)):
        raise ValueError(f"--share: expected I/N with I below N, for example 0/4, found {text!r}")
    return ResourceSlice(int(place), int(workers))


@dataclass(frozen=True)
class Ended:
    """How an attempt ended."""

    state: TrialState
    values: list[float] | None
    attributes: dict[str, Any]


@dataclass
class Attempt:
    """One attempt at a trial.

    Attributes:
        trial: Optuna's trial, claimed by this worker.
        sweep: the sweep.
        queue: its trials.
        share: this worker's part of the machine.
        alive: called several times a second; raises where the attempt must end.
        again: as in `Around`.
        retry: does what needs the storage, again and again while it is away.
    """

    trial: Trial
    sweep: Sweep
    queue: Queue
    share: ResourceSlice
    alive: Callable[[TrialProcess | None], None]
    again: Callable[[], None]
    retry: Callable[[Callable[[], dict[str, Any]]], dict[str, Any]]
    _found: dict[int, Found] = field(default_factory=dict)
    _reported: set[int] = field(default_factory=set)
    _anew: list[str] = field(default_factory=list)

    def run(self) -> Ended:
        """Run every seed of the trial.

        Raises:
            LeaseLost: another worker has it now.
            Interrupted: this worker must stop.
        """
        try:
            experiment = self._experiment()
            self._take_folder()
            config = self.sweep.config
            minutes = config.trial_minutes
            limits = Limits(minutes and 60 * minutes, 60 * config.silent_minutes)
            for place, seed in enumerate(config.seeds):
                self._found[seed] = self._run_seed(experiment, seed, limits)
                self._report_seed(place)
        except Failed as failed:
            return Ended(TrialState.FAIL, None, {**self._facts(), REASON: str(failed)})
        except Pruned as pruned:
            return Ended(TrialState.PRUNED, None, {**self._facts(), REASON: str(pruned)})
        values = [self._mean(name) for name in self.sweep.config.objectives]
        return Ended(TrialState.COMPLETE, values, self._facts())

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
        own = {"study": self.queue.study_id, "params": self.trial.params}
        if self.root != self.trial.number and not folder.exists():
            self._anew = [f"the start, since {folder} is not on this machine"]
            print(f"trial {self.root}: goes on from {self._anew[0]}", flush=True)
        if folder.exists() and not _says(mark, own):
            aside = folder.with_name(f"{folder.name}.of-another-{secrets.token_hex(4)}")
            print(f"{folder}: of another trial, moved to {aside}", flush=True)
            folder.rename(aside)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(mark, json.dumps(own, indent=1) + "\n")

    def _experiment(self) -> Experiment:
        try:
            values = self.retry(lambda: self.sweep.space.suggest(self.trial))
        except UpdateFinishedTrialError:
            raise LeaseLost(f"trial {self.trial.number}") from None
        try:
            return trial_experiment(self.sweep, values, self.share.threads)
        except ValueError as error:
            raise Failed(" ".join(str(error).split())) from None

    def _run_seed(self, experiment: Experiment, seed: int, limits: Limits) -> Found:
        seeded = experiment.model_copy(
            update={"run": experiment.run.model_copy(update={"seed": seed})}
        )
        curve_prunes = self.sweep.config.pruner.kind not in ("none", "wilcoxon")
        around = Around(
            environment=self.share.environment if experiment.run.device in _ANY_GPU else {},
            alive=self.alive,
            curve=self._report_curve if curve_prunes else None,
            again=self.again,
            alive_s=_ALIVE * self.sweep.config.lease_s,
            wait_s=self.sweep.config.lease_s + _GRACE_S,
        )
        return run_seed(
            seeded,
            self.sweep.config.objectives,
            self.sweep.paths.seed(self.root, seed),
            limits,
            around,
        )

    def _report_curve(self, curve: Mapping[int, float]) -> None:
        """Tell Optuna the search's own validation; raise Pruned where it gives up."""
        for step in sorted(curve.keys() - self._reported):
            if self._gives_up(curve[step], step):
                raise Pruned(f"at search step {step}, at {curve[step]:.4f} bits per byte")

    def _report_seed(self, place: int) -> None:
        """Tell Optuna a seed's value; raise Pruned where it gives up before the last one."""
        config = self.sweep.config
        if config.pruner.kind != "wilcoxon":
            return
        (name,) = config.objectives
        gives_up = self._gives_up(self._found[config.seeds[place]].objectives[name], place)
        if gives_up and place + 1 < len(config.seeds):
            raise Pruned(f"after {place + 1} of {len(config.seeds)} seeds")

    def _gives_up(self, value: float, step: int) -> bool:
        """What the pruner says; it is not asked while the storage is away."""
        answers: list[bool] = []
        there = try_once(lambda: self.queue.report(self.trial, value, step)) and try_once(
            lambda: answers.append(self.trial.should_prune())
        )
        if there:
            self._reported.add(step)
        return any(answers)

    def _mean(self, name: str) -> float:
        return statistics.fmean(one.objectives[name] for one in self._found.values())

    def _facts(self) -> dict[str, Any]:
        """What the table says of this attempt: where it ran, and what each seed came to."""
        names = self.sweep.config.objectives
        runs = {
            str(seed): {
                "values": [one.objectives[name] for name in names],
                **one.facts,
                "architecture": one.architecture,
            }
            for seed, one in self._found.items()
        }
        threads = asked_threads(self.sweep) or self.share.threads
        return {
            **self.share.facts(),
            "threads": threads,
            "went_on_from": self._anew,
            "runs": runs,
        }


def _says(mark: Path, own: Mapping[str, Any]) -> bool:
    """Whether a folder's mark is there and says this."""
    try:
        return read_object(mark, "") == own
    except (FileNotFoundError, ValueError):
        return False
