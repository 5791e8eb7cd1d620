"""Short and full trainings of layouts for derivations, and their seeds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from model import Layout, layout_letters
from nas.derivation.training import Length
from pipeline.experiment import Experiment, with_settings
from pipeline.jobs import Countdown, Job, layout_job, run_all, training_result
from pipeline.plan import RunPlan
from pipeline.run_files import read_result, remove_weights
from training.run_dir import claim
from training.signals import StopRequest
from utils.files import write_whole
from utils.screen import say

PROBES, FINALS = "probes", "finals"
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
        experiment = self._experiment(length)
        run = experiment.run.model_dump(mode="json", include={"threads", "validate_every"})
        sections = {"model": experiment.model.identity(), "retrain": experiment.retrain.identity()}
        claim(self._folder(length), self.plan.identity(run=run, **sections), {})

    def _folder(self, length: Length) -> Path:
        return self.plan.run_dir / (PROBES if length == "half" else FINALS)

    def _experiment(self, length: Length) -> Experiment:
        settings: dict[str, object] = {"run.threads": 1}
        if length == "full":
            return with_settings(self.plan.experiment, settings)
        steps = settings["retrain.steps"] = max(1, self.plan.stages.first // 2)
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


def seeded(experiment: Experiment, seed: int) -> Experiment:
    """The experiment of one of several runs, without a sweep: each searches and derives anew.

    Derivations draw and train by `derive.seed`, so it goes with the run's: the experiment's own is
    added to it, so that what a file or a sweep sets apart stays apart.
    """
    own = experiment.derive.seed
    return with_settings(experiment, {"run.seed": seed, "derive.seed": own + seed})


def check_fresh(
    seeds: Sequence[int],
    option: str,
    used: Sequence[int],
    whose: str,
    why: str = "which took part in the choice; give seeds that did not",
) -> None:
    """Refuse seeds, which `option` gives, where they are among those `used`, which are `whose`.

    Raises:
        ValueError: one of them is; the message ends with `why` it must not.
    """
    if both := [seed for seed in seeds if seed in used]:
        given, others = (", ".join(map(str, some)) for some in (seeds, used))
        raise ValueError(f"{option} {given}: {both[0]} is one of {whose} ({others}), {why}")
