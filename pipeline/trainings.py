"""Short and full trainings of layouts for derivations, the key that they share, and their seeds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from model import Layout, layout_letters, load_architecture
from nas.derivation import TRAINED, Length
from pipeline.experiment import Experiment, with_settings
from pipeline.jobs import Countdown, Job, layout_job, run_all, training_result
from pipeline.plan import RunPlan
from pipeline.run_files import read_result, remove_weights
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import read_object, write_whole
from utils.screen import say

_REMEDY = "give another --run"


def key_of(experiment: Experiment, inputs: Mapping[str, str]) -> dict[str, Any]:
    """What a table belongs to: rows under another key are not comparable with its rows."""
    run = experiment.run.model_dump(mode="json", include={"precision", "threads", "validate_every"})
    data, model = experiment.data.model_dump(mode="json"), experiment.model.identity()
    return {
        "run": run,
        "data": data,
        "model": model,
        "retrain": experiment.retrain.identity(),
        **inputs,
    }


def claim_key(path: Path, key: Mapping[str, Any], remedy: str = _REMEDY) -> None:
    """Say in a key file what results belong to; check it where it is there already.

    Raises:
        ValueError: the results there belong to another key.
        OSError: the file cannot be written.
    """
    if path.exists():
        check_key(path, key, remedy)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps({**key, "commit": commit()}, indent=1) + "\n")


def check_key(path: Path, key: Mapping[str, Any], remedy: str = _REMEDY) -> dict[str, Any]:
    """The content of a key file; ValueError where its results belong to another key."""
    known = read_object(path)
    ours: Any = json.loads(json.dumps(key))
    theirs: Any = {name: known.get(name) for name in ours}
    names = list[str]()
    # Down to the first value that differs.
    while isinstance(theirs, dict) and isinstance(ours, dict) and theirs != ours:
        both = sorted(theirs.keys() | ours.keys())
        name = next((name for name in both if theirs.get(name) != ours.get(name)), None)
        if name is None:  # null on one side, absent on the other
            break
        names.append(name)
        theirs, ours = theirs.get(name), ours.get(name)
    if theirs == ours:
        return known
    # A key may be left out where it is at its default.
    was, now = ("not given" if value is None else value for value in (theirs, ours))
    raise ValueError(
        f"{path}: {'.'.join(names)} is {was}, now {now}; rows under another key are no "
        f"comparison: {remedy}"
    )


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


def check_comparison(plan: RunPlan) -> None:
    """Refuse to compare a layout by seeds with which it was trained to be chosen.

    Raises:
        ValueError: one of compare.seeds is such a seed, or the chosen architecture is damaged.
    """
    path = plan.run_dir / "architecture.json"
    evidence = load_architecture(path).evidence if path.exists() else None
    # What another method chose owes nothing to trainings that lie there too.
    if evidence is not None and evidence.method.partition(":")[0] in TRAINED:
        whose = f"the seeds with which layouts were trained in {plan.run_dir}"
        seeds = plan.experiment.compare.seeds
        check_fresh(seeds, "compare.seeds", seeds_trained(plan.run_dir), whose)
