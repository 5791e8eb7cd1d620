"""Layouts that are drawn, scored by a SuperNet and trained alone, to compare the two.

Layouts are drawn by a seed, each network once: of about one cost, or free. A choice is the index of
a candidate for each slot.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.keys import claim_key, key_of
from benchmarks.layoutbench.making import LAYOUTS
from benchmarks.ranking import Ranking, ranking
from model import Layout, Network, layout_letters
from nas.costs.latency import Latencies
from nas.derivation.base import Choice, Networks
from nas.statistics.paired_scores import Score
from pipeline.costs import time_models
from pipeline.derive import derive
from pipeline.experiment import Experiment, with_settings
from pipeline.jobs import Job, layout_job, run_all, training_result
from pipeline.layout_scores import SupernetScores, check_fresh
from pipeline.plan import RunPlan
from pipeline.run_files import remove_weights
from training.signals import StopRequest
from utils.files import read_object

TOLERANCE = 0.03
_TRIES, _MEDIAN_OF = 100_000, 1001


def free_layouts(networks: Networks, slots: int, count: int, seed: int) -> list[Choice]:
    """Layouts of different networks, drawn uniformly; of every network if there are no more."""
    return _drawn(networks, slots, count, seed, lambda choice: True)


def equal_layouts(
    target: Choice, networks: Networks, count: int, seed: int, fits: Callable[[Choice], bool]
) -> list[Choice]:
    """Layouts of different networks that fit, drawn as `free_layouts` are.

    Where few of all layouts fit and there are too many to list, what is missing are
    rearrangements of the target, the layout whose cost they have. There may be fewer than `count`.
    """
    slots = len(target)
    drawn = _drawn(networks, slots, count, seed, fits)
    if len(drawn) == count or networks.listed(slots):
        return drawn
    generator = np.random.default_rng([seed, 1])
    rearranged = (tuple(generator.permutation(target).tolist()) for _ in range(_TRIES))
    return _first(networks, itertools.chain(drawn, rearranged), count)


def median_layout(
    candidates: int, slots: int, seed: int, cost: Callable[[Choice], float]
) -> Choice:
    """Of 1001 layouts drawn freely one of median cost."""
    generator = np.random.default_rng([seed, 2])
    drawn_NL = generator.integers(candidates, size=(_MEDIAN_OF, slots))
    choices: list[Choice] = [tuple(choice) for choice in drawn_NL.tolist()]
    return sorted(choices, key=lambda choice: (cost(choice), choice))[_MEDIAN_OF // 2]


def _drawn(
    networks: Networks, slots: int, count: int, seed: int, fits: Callable[[Choice], bool]
) -> list[Choice]:
    generator = np.random.default_rng(seed)
    if networks.listed(slots):
        every = [*filter(fits, networks.layouts(slots))]
        order = generator.permutation(len(every)).tolist()
        return _first(networks, (every[index] for index in order), count)
    candidates = len(networks.candidates)
    draws = (tuple(generator.integers(candidates, size=slots).tolist()) for _ in range(_TRIES))
    return _first(networks, filter(fits, draws), count)


def _first(networks: Networks, choices: Iterator[Choice], count: int) -> list[Choice]:
    return [*itertools.islice(networks.first_forms(choices), count)]


@dataclass(frozen=True)
class Sample:
    """The layouts of a comparison.

    Attributes:
        target_flops: what those of one cost cost, within 3%; None where none are wanted.
        target: where that comes from, in words.
        groups: "equal" and "free", no network twice in one of them; one that is in both has the
            same layout there.
    """

    target_flops: float | None
    target: str
    groups: dict[str, list[Layout]]

    @property
    def layouts(self) -> list[Layout]:
        """Each network once."""
        return list(dict.fromkeys(itertools.chain(*self.groups.values())))


def sample_of(plan: RunPlan, searches: Sequence[int], equal: int, free: int, seed: int) -> Sample:
    """Draw so many layouts of one cost, and so many free ones.

    Those of one cost cost what the searches' argmax costs, within 3%; where the searches learned no
    alpha, the median of layouts drawn freely.
    """
    slots, candidates = len(plan.slots), len(plan.candidates)
    networks = Networks(plan.candidates, plan.sizes["tie_blocks"])

    def cost(choice: Choice) -> float:
        return plan.costs(networks.layout(choice))

    target_flops, target, equals = None, "", list[Choice]()
    if equal:
        if plan.experiment.search.alpha_learns:
            chosen, target = _argmax(plan, searches), "what the search's argmax costs"
        else:
            chosen = median_layout(candidates, slots, seed, cost)
            target = "the median of free layouts, as the search learned no alpha"
        target_flops = flops = cost(chosen)

        def fits(choice: Choice) -> bool:
            return abs(cost(choice) - flops) <= TOLERANCE * flops

        equals = equal_layouts(chosen, networks, equal, seed, fits)
    frees = free_layouts(networks, slots, free, seed) if free else []
    known: dict[Network, Layout] = {}
    groups = {
        name: [known.setdefault(networks.of(one), networks.layout(one)) for one in choices]
        for name, choices in (("equal", equals), ("free", frees))
    }
    return Sample(target_flops, target, groups)


def _argmax(plan: RunPlan, searches: Sequence[int]) -> Choice:
    layout = derive(plan, method="argmax", searches=list(searches), gap=False).blocks
    labels = [candidate.label for candidate in plan.candidates]
    return tuple(labels.index(candidate.label) for candidate in layout)


@dataclass
class Ranked:
    """Networks with what the SuperNet says of them and what training alone came to.

    Attributes:
        searches: seeds of the searches whose SuperNets score.
        seeds: of the trainings, which are in the folder.
        steps: of a training; None: half of the experiment's own.
        scores: by layout, in letters.
    """

    plan: RunPlan
    sample: Sample
    searches: Sequence[int]
    seeds: Sequence[int]
    steps: int | None
    folder: Path
    scores: dict[str, Score] = field(default_factory=dict)

    def open(self) -> None:
        """Score every network by the SuperNet's weights, once all that can be checked is checked.

        Raises:
            ValueError: the weights are not there, a training seed is a search's, a training is too
                short for its warm-up, or the folder has rows of other settings.
        """
        why = "by which layouts are scored; give --seeds that took no part in them"
        check_fresh(self.seeds, "training seeds", self.searches, "the searches' seeds", why)
        tokens = self.plan.experiment.derive.score_tokens
        supernet_scores = SupernetScores(self.plan, self.searches, tokens)
        self.scores = {
            layout_letters(layout): supernet_scores.score(layout) for layout in self.sample.layouts
        }
        claim_key(self.folder / "key.json", key_of(self._trained, self.plan.inputs()))

    @cached_property
    def _trained(self) -> Experiment:
        """The experiment as the layouts are trained."""
        settings = {"retrain.steps": self.training_steps}
        return with_settings(self.plan.experiment, settings, ["retrain.epochs"])

    @property
    def training_steps(self) -> int:
        """Steps of a training, without a fine-tuning that may follow."""
        return self.steps or max(1, self.plan.stages.first // 2)

    def train(self, *, workers: int, stop: StopRequest) -> None:
        """Train every layout with every seed; those that are done stay."""
        jobs = [self._job(layout, seed) for seed in self.seeds for layout in self.sample.layouts]
        waiting = [job for job in jobs if training_result(job) is None]

        def done(job: Job) -> None:
            remove_weights(job.folder)
            print(f"{job.name}: done", flush=True)

        run_all(waiting, workers=workers, stop=stop, done=done)

    def _job(self, layout: Layout, seed: int) -> Job:
        return layout_job(self._trained, layout_letters(layout), seed, self.folder / LAYOUTS)

    def latencies(self) -> Latencies:
        """Forward latency of every layout, all in turn."""
        models = {
            layout_letters(layout): self.plan.network([[candidate] for candidate in layout])
            for layout in self.sample.layouts
        }
        return time_models(self.plan, models)

    def table(self, latencies: Latencies) -> list[dict[str, Any]]:
        """One row for each network: nats by the SuperNet on validation, of trainings on test."""
        rows, results = [], {}
        for layout in self.sample.layouts:
            letters = layout_letters(layout)
            paths = [training_result(self._job(layout, seed)) for seed in self.seeds]
            results[letters] = [read_object(path) for path in paths if path is not None]
            test, valid = (
                [result[split]["nats_per_token"] for result in results[letters]]
                for split in ("test", "valid")
            )
            score, by_seed = self.scores[letters], dict[str, float]()
            for name, nats in {"alone_nats": test, "alone_valid_nats": valid}.items():
                by_seed |= {f"{name}_{s}": n for s, n in zip(self.seeds, nats, strict=True)}
            rows.append(
                {
                    "layout": letters,
                    **{name: layout in group for name, group in self.sample.groups.items()},
                    "parameters": results[letters][0]["parameters"],
                    "flops_per_token": results[letters][0]["flops_per_token"],
                    "latency_ms": latencies.median_ms.get(letters),
                    "attention": sum(candidate.kind == "attention" for candidate in layout),
                    "supernet_nats": score.nats_per_token,
                    "supernet_error": score.standard_error,
                    "alone_nats": float(np.mean(test)),
                    **by_seed,
                }
            )
        return rows


def rankings(rows: Sequence[dict[str, Any]], seeds: Sequence[int]) -> dict[str, Ranking]:
    """What may be said of each group of layouts."""
    by_group = {}
    for group in ("equal", "free"):
        members = [row for row in rows if row[group]]
        if len(members) < 2:
            continue
        columns = {"parameters": "parameters", "FLOPs": "flops_per_token"}
        if all(row["latency_ms"] is not None for row in members):
            columns["latency"] = "latency_ms"
        columns["attention slots"] = "attention"
        by_group[group] = ranking(
            np.array([[row[f"alone_nats_{seed}"] for row in members] for seed in seeds]),
            np.array([row["supernet_nats"] for row in members]),
            {
                name: np.array([float(row[column]) for row in members])
                for name, column in columns.items()
            },
        )
    return by_group
