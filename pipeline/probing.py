"""Trainings that a derivation asks for: each in a folder of its own, kept, and never made twice."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from model import layout_letters
from nas.derivation import Trial
from pipeline.context import RunPlan
from pipeline.experiment import Experiment, with_settings
from pipeline.jobs import Countdown, Job, layout_job, run_all, training_result
from pipeline.run_files import read_result, remove_weights
from pipeline.table_key import claim_key, key_of
from training.signals import StopRequest
from utils.files import read_object, write_whole
from utils.screen import say

PROBES, FINALS, KEY = "probes", "finals", "key.json"
_DIVERGED = "diverged.json"
# Seeds of trainings: far from those of searches and retrainings, and others for each derive.seed.
_FIRST_SEED, _SEEDS = 1000, 100


@dataclass
class Probes:
    """Trains layouts as retrain.py does, one thread each, so that workers change no figure.

    Of half length in RUN/probes/LAYOUT/seed-N, with a whole schedule of their own; of full length
    in RUN/finals/LAYOUT/seed-N. Results stay there and serve the next derivation; weights do not.
    """

    plan: RunPlan
    workers: int = 1

    def __call__(self, trials: Sequence[Trial]) -> list[float]:
        """Validation nats of trainings; infinite where one diverged.

        Raises:
            ValueError: a folder holds results of another experiment or text, a result is damaged,
                or a training failed.
            Stopped: a signal came; everything is saved.
        """
        for half in sorted({trial.half for trial in trials}):
            self._claim(half)
        jobs = [self._job(trial) for trial in trials]
        waiting = [job for job in jobs if _nats_of(job) is None]
        if len(waiting) < len(jobs):
            say(f"trained already: {len(jobs) - len(waiting)} of {len(jobs)}")
        countdown = Countdown(len(waiting), self.workers)
        # Only now: what comes between trainings, such as scoring layouts, ends at once by itself.
        stop = StopRequest()
        with stop.listening():
            run_all(
                waiting,
                workers=self.workers,
                stop=stop,
                done=lambda job: _trained(job, countdown),
                diverged=lambda job, words: _remember_diverged(job, words, countdown),
            )
        return [inf if nats is None else nats for nats in map(_nats_of, jobs)]

    def _claim(self, half: bool) -> None:
        folder = self._folder(half)
        key = key_of(self._experiment(half), self.plan.inputs())
        remedy = f"give another --run, or remove {folder} to train again"
        claim_key(folder / KEY, key, remedy)

    def _folder(self, half: bool) -> Path:
        return self.plan.run_dir / (PROBES if half else FINALS)

    def _experiment(self, half: bool) -> Experiment:
        settings: dict[str, object] = {"run.threads": 1}
        if not half:
            return with_settings(self.plan.experiment, settings)
        steps = settings["retrain.steps"] = self.plan.half_length
        try:
            return with_settings(self.plan.experiment, settings, ["retrain.epochs"])
        except ValueError as error:
            raise ValueError(
                f"derive.method predictor: its probes have {steps} steps, half of retrain.steps: "
                f"{error}; give more steps, or what fits half of them"
            ) from None

    def _job(self, trial: Trial) -> Job:
        seed = _FIRST_SEED + _SEEDS * self.plan.experiment.derive.seed + trial.seed
        letters = layout_letters(trial.layout)
        return layout_job(self._experiment(trial.half), letters, seed, self._folder(trial.half))


def seeds_trained(run_dir: Path) -> list[int]:
    """Seeds with which derivations of a run have trained layouts."""
    folders = (folder for kind in (PROBES, FINALS) for folder in (run_dir / kind).glob("*/seed-*"))
    numbers = {folder.name.removeprefix("seed-") for folder in folders}
    return sorted(int(number) for number in numbers if number.isdecimal())


def _nats_of(job: Job) -> float | None:
    """What a training came to; None before its end."""
    if (marker := job.folder / _DIVERGED).exists():
        read_object(marker, f"remove {job.folder} to train it again")
        return inf
    path = training_result(job)
    if path is None:
        return None
    result = read_result(path)
    asked = job.experiment.derive.layout, job.experiment.run.seed
    if (result["layout"], result["seed"]) != asked:
        raise ValueError(
            f"{path}: is of layout {result['layout']} and seed {result['seed']}, expected "
            f"{asked[0]} and {asked[1]}; remove {job.folder} to train it again"
        )
    return float(result["valid"]["nats_per_token"])


def _trained(job: Job, countdown: Countdown) -> None:
    say(countdown.line(f"{job.name}: validation {_nats_of(job):.4f} nats"))
    remove_weights(job.folder)


def _remember_diverged(job: Job, words: str, countdown: Countdown) -> None:
    # Begun again it would diverge again: what is drawn does not change.
    write_whole(job.folder / _DIVERGED, json.dumps({"diverged": words}) + "\n")
    say(countdown.line(f"{job.name}: {words}; it counts as the worst"))
    remove_weights(job.folder)
