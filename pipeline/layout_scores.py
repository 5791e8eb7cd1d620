"""What layouts come to, kept as it comes: by a SuperNet's weights, or by their own trainings."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from data import EvaluationStreams, TokenArray
from model import LanguageModel, Layout, Mix, layout_letters
from model.layout import legend
from model.saving import tensors_digest
from nas.derivation.base import Derived, Request
from nas.derivation.from_search import draws, read_searches
from nas.derivation.training import Length
from nas.search.estimators import all_terms
from nas.statistics.paired_scores import Score, discretisation_gap, mean_score, score_of
from pipeline.experiment import Experiment, with_settings
from pipeline.jobs import Countdown, Job, layout_job, run_all, training_result
from pipeline.plan import RunPlan
from pipeline.run_files import remove_weights
from training.checkpoint import LAST, read_header, read_tensors, restore_weights
from training.evaluation import evaluate_cells
from training.run_dir import claim, identity_hash, machine, source_digest
from training.signals import StopRequest
from training.state import TrainState
from utils.files import read_object, words_of, write_whole
from utils.kept import Kept
from utils.screen import say

# All that a score by a SuperNet's weights passes through.
_SCORED_SOURCES = ("data", "model", "nas", "pipeline", "training", "utils")


HALF, FULL = "trainings/half", "trainings/full"
_DIVERGED = "diverged.json"
# Seeds of trainings: far from those of searches and retrainings, and others for each derive.seed.
_FIRST_SEED, _SEEDS = 1000, 100
# Of a training, in trainings of full length.
_WORK: dict[Length, float] = {"half": 0.5, "full": 1.0}


@dataclass
class SupernetScores:
    """Scores of networks, layouts and mixtures on the validation text; each layout is scored once.

    With several searches a score is the mean over their SuperNets, which are loaded when the first
    score is asked for; ValueError: they are not there. A layout's score is kept in the search's
    folder as soon as it is there: the same command goes on from what was scored.

    Attributes:
        seeds: of the searches.
        tokens: how many tokens of the validation text are read; None: all.
    """

    plan: RunPlan
    seeds: Sequence[int]
    tokens: int | None = None

    def score(self, layout: Layout) -> Score:
        """The score of a layout: in every slot its candidate, with weight 1.

        The SuperNet has other weights for other layouts of one network, and none is nearer to it.
        """
        numbers = {candidate.label: k for k, candidate in enumerate(self.plan.candidates)}
        mix: Mix = [[(numbers[candidate.label], None)] for candidate in layout]
        name, scores = " ".join(candidate.label for candidate in layout), list[Score]()
        for net, kept in zip(self._nets, self._kept, strict=True):
            if name not in kept.values:
                score = self._pass(net, mix)
                kept.add(name, [score.nats_P.tolist(), score.tokens_P.tolist()])
            scores.append(Score(*map(np.array, kept.values[name])))
        return mean_score(scores)

    def soft(self, pi_RLC: NDArray[Any]) -> Score:
        """The score of the nets that hold every candidate with its pi, without noise.

        Each of the R SuperNets was trained under its own pi.
        """
        mixes = [
            all_terms(torch.from_numpy(pi_LC).to(self.plan.device))
            for pi_LC in pi_RLC.astype(np.float32)
        ]
        return mean_score([self._pass(*pair) for pair in zip(self._nets, mixes, strict=True)])

    def _pass(self, net: LanguageModel, mix: Mix) -> Score:
        nats_NB, tokens_NB = evaluate_cells(net, self._streams, device=self.plan.device, mix=mix)
        return score_of(nats_NB.numpy(), tokens_NB.numpy())

    @cached_property
    def _text(self) -> TokenArray:
        return self.plan.prepared.tokens["valid"][: self.tokens]

    @cached_property
    def _streams(self) -> EvaluationStreams:
        return EvaluationStreams(self._text, **self.plan.cut())

    @cached_property
    def _kept(self) -> list[Kept]:
        return [
            Kept(self.plan.search_folder(seed) / "scores.jsonl", self._key(net))
            for seed, net in zip(self.seeds, self._nets, strict=True)
        ]

    def _key(self, net: LanguageModel) -> str:
        # The search's identity knows what the weights do not show, such as a window or a number of
        # heads. A commit would not do: every changed tree has the same one, and without git there
        # is none.
        parts = {
            "search": identity_hash(self.plan.search_identity),
            "weights": tensors_digest(net.state_dict()),
            "tokens": hashlib.sha256(np.ascontiguousarray(self._text).tobytes()).hexdigest(),
            "cut": self.plan.cut(),
            "machine": machine(self.plan.device),
            "sources": source_digest(_SCORED_SOURCES),
        }
        return identity_hash(parts)

    @cached_property
    def _nets(self) -> list[LanguageModel]:
        seeds = ", ".join(map(str, self.seeds))
        say(f"scoring layouts ({legend(self.plan.candidates)}) by the SuperNet (search {seeds})")
        return [load_supernet(self.plan.with_seed(seed)) for seed in self.seeds]


def with_gap(supernet_scores: SupernetScores, request: Request, derived: Derived) -> Derived:
    """Add the discretisation gap; say why where the SuperNet's weights are not to be had.

    With several searches each SuperNet has its own pi in the soft net, and layouts are drawn from
    pi of their mean alpha, as the derived one was found.
    """
    config = request.config
    searched = read_searches(request, config.method)
    choices = draws(searched.pi_LC, config.draws, np.random.default_rng(config.seed))
    evidence: dict[str, Any]
    try:
        soft = supernet_scores.soft(searched.pi_RLC)
        layouts = map(request.networks.layout, choices)
        drawn = [supernet_scores.score(layout) for layout in layouts]
        one_hot = supernet_scores.score(derived.layout)
        evidence = {"gap": discretisation_gap(soft, drawn, one_hot)}
    except (ValueError, OSError) as error:
        evidence = {"caveats": (f"discretisation gap: not measured: {words_of(error)}",)}
    return replace(derived, evidence=derived.evidence.model_copy(update=evidence))


def load_supernet(plan: RunPlan) -> LanguageModel:
    """The SuperNet of the finished search with the plan's seed, at its last step."""
    seed = plan.seed
    path = plan.searched_folder(seed) / LAST
    if not path.exists() or read_header(path)["step"] != plan.search_steps:
        raise ValueError(
            f"{path}: not found, or not of the last step; the SuperNet's weights are needed: run "
            f"search.py with run.seed={seed} first"
        )
    alpha_LC = nn.Parameter(torch.zeros(len(plan.slots), len(plan.candidates)))
    state = TrainState(plan.supernet(), {}, {}, {"alpha": alpha_LC})
    restore_weights(state, read_tensors(path))
    return state.model.eval()


@dataclass
class LayoutTrainings:
    """Trains layouts as retrain.py does, one thread each, so that workers change no figure.

    Of half length, with a whole schedule of their own, in RUN/trainings/half/LAYOUT/seed-N; the
    others in RUN/trainings/full. Results stay there for the next derivation; weights do not.
    """

    plan: RunPlan
    workers: int = 1
    _countdown: Countdown | None = field(init=False, default=None)

    def foresee(self, words: str, half: int, full: int) -> None:
        """Say how many trainings are to come at most, and at first how to do with less.

        The time that is left counts all of them.
        """
        shorter = f" ({half} of half as many)" if half else ""
        steps = f"{self.plan.stages.steps:,} steps"
        count = f"at most {half + full} trainings of {steps}{shorter}"
        say(f"{words}: {count}, {self.workers} at a time")
        if self._countdown is None:
            more = "--set derive.trainings.half=4" if half else "after a search --set derive.top=1"
            fewer = f"--set derive.trainings.seeds=1, {more}"
            say(f"to train fewer: {fewer}; letters: {legend(self.plan.candidates)}")
            self._countdown = Countdown(0, self.workers)
        self._countdown.expect(half + full, half * _WORK["half"] + full)

    def __call__(
        self, layouts: Sequence[Layout], length: Length, seeds: Sequence[int]
    ) -> list[float]:
        """Validation nats of all layouts by the first seed, the next one, ...; infinite: diverged.

        ValueError: a folder holds results of another experiment or text, or a training failed.
        """
        experiment = self._experiment(length)
        run = experiment.run.model_dump(mode="json", include={"threads", "validate_every"})
        sections = {"model": experiment.model.identity(), "retrain": experiment.retrain.identity()}
        claim(self._folder(length), self.plan.identity(run=run, **sections), {})
        jobs = [self._job(layout, length, seed) for seed in seeds for layout in layouts]
        waiting = [job for job in jobs if _nats_of(job) is None]
        countdown, work = self._countdown or Countdown(len(jobs), self.workers), _WORK[length]
        if there := len(jobs) - len(waiting):
            say(f"already trained: {there} of {len(jobs)}")
            countdown.leave_out(there, work)

        def done(job: Job) -> None:
            say(countdown.line(f"{job.name}: validation {_nats_of(job):.4f} nats/token", work))
            remove_weights(job.folder)

        def diverged(job: Job, words: str) -> None:
            # Begun again it would diverge again: what is drawn does not change.
            write_whole(job.folder / _DIVERGED, json.dumps({"diverged": words}) + "\n")
            say(countdown.line(f"{job.name}: {words}; it counts as the worst", work))
            remove_weights(job.folder)

        # Only now: what comes between trainings, such as scoring layouts, ends at once by itself.
        with StopRequest().listening() as stop:
            run_all(waiting, workers=self.workers, stop=stop, done=done, diverged=diverged)
        for job in jobs:  # one may have ended just as this process was killed
            remove_weights(job.folder)
        return [inf if nats is None else nats for nats in map(_nats_of, jobs)]

    def _folder(self, length: Length) -> Path:
        return self.plan.run_dir / (HALF if length == "half" else FULL)

    def _experiment(self, length: Length) -> Experiment:
        settings: dict[str, object] = {"run.threads": 1}
        if length == "full":
            return with_settings(self.plan.experiment, settings)
        stages, method = self.plan.stages, self.plan.experiment.derive.method
        steps = settings["retrain.steps"] = max(1, stages.first // 2)
        if stages.fine_tune:
            settings["retrain.fine_tune.steps"] = max(1, stages.fine_tune // 2)
        epochs = ["retrain.epochs", "retrain.fine_tune.epochs"]
        try:
            return with_settings(self.plan.experiment, settings, epochs)
        except ValueError as error:
            raise ValueError(
                f"derive.method {method}: short trainings have {steps} steps, half of "
                f"retrain.steps: {error}; give more steps, or what fits half of them"
            ) from None

    def seed(self, number: int) -> int:
        """The training seed of a number: 0 of half length, from 1 in full."""
        return _FIRST_SEED + _SEEDS * self.plan.experiment.derive.seed + number

    def _job(self, layout: Layout, length: Length, number: int) -> Job:
        letters, folder = layout_letters(layout), self._folder(length)
        return layout_job(self._experiment(length), letters, self.seed(number), folder)


def seeds_trained(run_dir: Path) -> list[int]:
    """Seeds with which derivations of a run have trained layouts."""
    folders = (folder for kind in (HALF, FULL) for folder in (run_dir / kind).glob("*/seed-*"))
    numbers = {folder.name.removeprefix("seed-") for folder in folders}
    return sorted(int(number) for number in numbers if number.isdecimal())


def _nats_of(job: Job) -> float | None:
    """What a training came to; None before its end."""
    if (job.folder / _DIVERGED).exists():
        return inf
    path = training_result(job)
    return None if path is None else float(read_object(path)["valid"]["nats_per_token"])


def seeded(experiment: Experiment, seed: int) -> Experiment:
    """The experiment of one of several runs, without a sweep: each searches and derives anew.

    Derivations draw and train by `derive.seed`, so it goes with the run's: the experiment's own is
    added to it, so that what a file or a sweep sets apart stays apart.
    """
    own = experiment.derive.seed
    return with_settings(experiment, {"run.seed": seed, "derive.seed": own + seed})


_FRESH = "which took part in the choice; give other seeds"


def check_fresh(
    seeds: Sequence[int], option: str, used: Sequence[int], whose: str, why: str = _FRESH
) -> None:
    """Refuse seeds, which `option` gives, where they are among those `used`, which are `whose`."""
    if both := [seed for seed in seeds if seed in used]:
        given, others = (", ".join(map(str, some)) for some in (seeds, used))
        raise ValueError(f"{option} {given}: {both[0]} is one of {whose} ({others}), {why}")
