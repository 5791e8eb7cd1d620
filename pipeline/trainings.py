"""Trainings that a derivation asks for: each in a folder of its own, kept, and never made twice."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from model import Layout, layout_letters
from nas.derivation import Length
from pipeline.context import RunPlan
from pipeline.experiment import Experiment, with_settings
from pipeline.jobs import Countdown, Job, layout_job, run_all, training_result
from pipeline.run_files import read_result, remove_weights
from pipeline.table_key import claim_key, key_of
from training.signals import StopRequest
from utils.files import write_whole
from utils.screen import say

PROBES, FINALS, KEY = "probes", "finals", "key.json"
_DIVERGED = "diverged.json"
# Seeds of trainings: far from those of searches and retrainings, and others for each derive.seed.
_FIRST_SEED, _SEEDS = 1000, 100


@dataclass
class LayoutTrainings:
    """Trains layouts as retrain.py does, one thread each, so that workers change no figure.

    Of half length in RUN/probes/LAYOUT/seed-N, with a whole schedule of their own; of full length
    in RUN/finals/LAYOUT/seed-N. Results stay there and serve the next derivation; weights do not.
    """

    plan: RunPlan
    workers: int = 1

    def __call__(
        self, layouts: Sequence[Layout], length: Length, seeds: Sequence[int]
    ) -> list[float]:
        """Validation nats of all layouts by the first seed, the next one, ...; infinite: diverged.

        Raises:
            ValueError: a folder holds results of another experiment or text, a result is damaged,
                or a training failed.
            Stopped: a signal came; everything is saved.
        """
        self._claim(length)
        jobs = [self._job(layout, length, seed) for seed in seeds for layout in layouts]
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

    def _claim(self, length: Length) -> None:
        folder = self._folder(length)
        key = key_of(self._experiment(length), self.plan.inputs())
        claim_key(folder / KEY, key, f"give another --run, or remove {folder} to train again")

    def _folder(self, length: Length) -> Path:
        return self.plan.run_dir / (PROBES if length == "half" else FINALS)

    def _experiment(self, length: Length) -> Experiment:
        settings: dict[str, object] = {"run.threads": 1}
        if length == "full":
            return with_settings(self.plan.experiment, settings)
        steps = settings["retrain.steps"] = self.plan.half_length
        try:
            return with_settings(self.plan.experiment, settings, ["retrain.epochs"])
        except ValueError as error:
            raise ValueError(
                f"derive.method predictor: its probes have {steps} steps, half of retrain.steps: "
                f"{error}; give more steps, or what fits half of them"
            ) from None

    def _job(self, layout: Layout, length: Length, number: int) -> Job:
        seed = _FIRST_SEED + _SEEDS * self.plan.experiment.derive.seed + number
        letters, folder = layout_letters(layout), self._folder(length)
        return layout_job(self._experiment(length), letters, seed, folder)


def seeds_trained(run_dir: Path) -> list[int]:
    """Seeds with which derivations of a run have trained layouts."""
    folders = (folder for kind in (PROBES, FINALS) for folder in (run_dir / kind).glob("*/seed-*"))
    numbers = {folder.name.removeprefix("seed-") for folder in folders}
    return sorted(int(number) for number in numbers if number.isdecimal())


def _nats_of(job: Job) -> float | None:
    """What a training came to; None before its end."""
    if (job.folder / _DIVERGED).exists():
        return inf
    path = training_result(job)
    return None if path is None else float(read_result(path)["valid"]["nats_per_token"])


def _trained(job: Job, countdown: Countdown) -> None:
    say(countdown.line(f"{job.name}: validation {_nats_of(job):.4f} nats"))
    remove_weights(job.folder)


def _remember_diverged(job: Job, words: str, countdown: Countdown) -> None:
    # Begun again it would diverge again: what is drawn does not change.
    write_whole(job.folder / _DIVERGED, json.dumps({"diverged": words}) + "\n")
    say(countdown.line(f"{job.name}: {words}; it counts as the worst"))
    remove_weights(job.folder)
