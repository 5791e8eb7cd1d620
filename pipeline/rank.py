"""Does a SuperNet rank layouts? They are drawn, scored, trained alone and compared."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from model import Network, build_model, layout_letters, load_architecture, network_of
from nas.costs.latency import Latencies
from nas.derivation import Layout
from nas.derivation.base import Choice, Networks
from nas.statistics.kendall import Ranking, ranking
from nas.statistics.paired_scores import Score
from nas.tabular.sampling import equal_layouts, free_layouts, median_layout, nearest_layout
from pipeline.build import time_models
from pipeline.context import Workbench
from pipeline.derive import derive
from pipeline.experiment import with_settings
from pipeline.jobs import Job, run_all
from pipeline.layoutbench import check_key, key_of
from pipeline.results import check_validations, read_result
from pipeline.run_folders import layout_name
from pipeline.supernet_scores import Inherited
from pipeline.sweep.results import remove_weights
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import write_whole

TOLERANCE = 0.03


@dataclass(frozen=True)
class Sample:
    """The layouts of a rank harness.

    Attributes:
        target_flops: what those of one cost cost, within 3%; None where none are wanted.
        target: where that comes from, in words.
        groups: "equal" and "free", no network twice in one of them; a network may be in both, by
            different layouts.
        tie_slots: `model.tie_slots`.
    """

    target_flops: float | None
    target: str
    groups: dict[str, list[Layout]]
    tie_slots: int | None = None

    @property
    def layouts(self) -> list[Layout]:
        """Each network once, by the first of its layouts."""
        return [forms[0] for forms in self._forms.values()]

    @property
    def drawn(self) -> list[Layout]:
        """All layouts that were drawn; one network may have two."""
        return [layout for group in self.groups.values() for layout in group]

    def forms(self, layout: Layout) -> list[Layout]:
        """The layouts of a layout's network that were drawn."""
        return self._forms[network_of(layout, self.tie_slots)]

    @cached_property
    def _forms(self) -> dict[Network, list[Layout]]:
        forms: dict[Network, list[Layout]] = {}
        for layout in self.drawn:
            forms.setdefault(network_of(layout, self.tie_slots), []).append(layout)
        return forms

    def groups_of(self, layout: Layout) -> dict[str, bool]:
        """In which groups a layout's network is."""
        forms = self.forms(layout)
        return {name: any(each in group for each in forms) for name, group in self.groups.items()}


def sample_of(
    bench: Workbench,
    searches: Sequence[int],
    equal: int,
    free: int,
    seed: int,
    target_flops: float | None = None,
) -> Sample:
    """Draw the layouts.

    Those of one cost cost what the searches' argmax costs, within 3%; where the searches learned
    no alpha, the median of layouts drawn freely.

    Args:
        bench: the experiment.
        searches: seeds of the searches.
        equal: how many of one cost.
        free: how many others.
        seed: of the draws.
        target_flops: that cost instead.

    Raises:
        ValueError: there is no finished search to take the cost from, or none costs so much.
    """
    candidates = bench.experiment.model.completed_candidates()
    slots, table = bench.experiment.model.slots, bench.costs
    networks = Networks(candidates, bench.experiment.model.tie_slots)

    def cost(choice: Choice) -> float:
        return table(networks.layout(choice))

    def fits(choice: Choice) -> bool:
        return abs(cost(choice) - flops) <= TOLERANCE * flops

    frees = free_layouts(networks, slots, free, seed) if free else []
    groups = {"equal": [], "free": [networks.layout(choice) for choice in frees]}
    if not equal:
        return Sample(None, "", groups, networks.tie_slots)
    if target_flops is not None:
        words, flops = "--target-flops", target_flops
        chosen = nearest_layout(len(candidates), slots, seed, cost, flops)
        if not fits(chosen):
            raise ValueError(
                f"--target-flops {flops:g}: no layout found within 3% of it; the nearest costs "
                f"{cost(chosen):.0f} FLOPs per token"
            )
    elif bench.experiment.search.alpha_learns:
        chosen, words = _argmax(bench, searches), "what the search's argmax costs"
        flops = cost(chosen)
    else:
        chosen = median_layout(len(candidates), slots, seed, cost)
        words, flops = "the median of free layouts, as the search learned no alpha", cost(chosen)
    equals = equal_layouts(chosen, networks, equal, seed, fits)
    groups["equal"] = [networks.layout(choice) for choice in equals]
    return Sample(flops, words, groups, networks.tie_slots)


def _argmax(bench: Workbench, searches: Sequence[int]) -> Choice:
    config = bench.experiment.derive.model_copy(
        update={"method": "argmax", "searches": list(searches), "gap": False}
    )
    labels = [candidate.label for candidate in bench.experiment.model.completed_candidates()]
    return tuple(labels.index(candidate.label) for candidate in derive(bench, config).slots)


@dataclass
class Ranked:
    """Networks with what the SuperNet says of them and what training alone came to.

    Attributes:
        bench: the experiment.
        sample: the layouts.
        searches: seeds of the searches whose SuperNets score.
        seeds: of the trainings.
        steps: of a training; None: half of the experiment's own.
        folder: where the trainings are.
        scores: by layout, in letters.
    """

    bench: Workbench
    sample: Sample
    searches: Sequence[int]
    seeds: Sequence[int]
    steps: int | None
    folder: Path
    scores: dict[str, Score] = field(default_factory=dict)

    def open(self) -> None:
        """Score every network by the SuperNet's weights; take the folder.

        Raises:
            ValueError: the weights are not there, a training seed is a search's, a training is too
                short for its warm-up, or the folder has rows of other settings.
            OSError: a file cannot be written.
        """
        check_seeds(self.seeds, self.searches)
        key = key_of(self._trained)
        inherited = Inherited(self.bench, self.searches, self.bench.experiment.derive.score_tokens)
        # First all of them: a network's score is the mean over its layouts that were drawn.
        for layout in self.sample.drawn:
            inherited.score(layout)
        self.scores = {
            layout_letters(layout): inherited.score(layout) for layout in self.sample.layouts
        }
        path = self.folder / "key.json"
        if path.exists():
            check_key(path, key)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(key | {"commit": commit()}, indent=1) + "\n")

    @cached_property
    def _trained(self) -> Workbench:
        """The experiment as the layouts are trained."""
        settings = {"retrain.steps": self.training_steps}
        shorter = with_settings(self.bench.experiment, settings, ["retrain.epochs"])
        return replace(self.bench, experiment=shorter)

    @property
    def training_steps(self) -> int:
        """Steps of a training, without a fine-tuning that may follow."""
        return self.steps or max(1, self.bench.stages.first // 2)

    def train(self, *, workers: int, stop: StopRequest) -> None:
        """Train every layout with every seed, as retrain.py does it; those that are done stay.

        Raises:
            ValueError: a training failed.
            Stopped: a signal came; everything is saved.
        """
        jobs = [self._job(layout, seed) for seed in self.seeds for layout in self.sample.layouts]
        waiting = [job for job in jobs if not self._results(job.folder)]
        lock, count = threading.Lock(), len(jobs) - len(waiting)

        def done(job: Job) -> None:
            nonlocal count
            remove_weights(job.folder)
            (result,) = self._results(job.folder)
            with lock:
                count += 1
                nats = read_result(result)["valid"]["nats_per_token"]
                print(f"{count}/{len(jobs)} {job.name}: validation {nats:.4f} nats", flush=True)

        run_all(waiting, workers=workers, stop=stop, done=done)

    def _job(self, layout: Layout, seed: int) -> Job:
        forms = [layout_letters(each) for each in self.sample.forms(layout)]
        # With fewer layouts in a group another one may have stood for the network.
        begun = (letters for letters in forms if self._folder(letters).exists())
        letters = next(begun, forms[0])
        settings = {"run.seed": seed, "derive.method": "layout", "derive.layout": letters}
        return Job(
            f"{letters}, seed {seed}",
            with_settings(self._trained.experiment, settings),
            ("derive", "retrain"),
            self._folder(letters) / f"seed-{seed}",
        )

    def _folder(self, letters: str) -> Path:
        return self.folder / "layouts" / layout_name(letters)

    def _results(self, folder: Path) -> list[Path]:
        return sorted(folder.glob("retrain/*/seed-*/result.json"))

    def latencies(self) -> Latencies:
        """Forward latency of every layout, all in turn."""
        models = {
            layout_letters(layout): build_model(
                load_architecture(self._job(layout, self.seeds[0]).folder / "architecture.json")
            )
            for layout in self.sample.layouts
        }
        return time_models(self.bench, models)

    def table(self, latencies: Latencies) -> list[dict[str, Any]]:
        """One row for each network: nats by the SuperNet on validation, of trainings on test.

        Raises:
            ValueError: best steps were chosen among more or fewer in some trainings.
        """
        rows, results = [], {}
        for layout in self.sample.layouts:
            letters = layout_letters(layout)
            found = [
                read_result(self._results(self._job(layout, seed).folder)[0]) for seed in self.seeds
            ]
            results[letters] = found
            nats = {
                split: [each[split]["nats_per_token"] for each in found]
                for split in ("test", "valid")
            }
            score = self.scores[letters]
            rows.append(
                {
                    "layout": letters,
                    **self.sample.groups_of(layout),
                    "parameters": found[0]["parameters"],
                    "flops_per_token": found[0]["flops_per_token"],
                    "latency_ms": latencies.median_ms.get(letters),
                    "attention": sum(each.kind == "attention" for each in layout),
                    "supernet_nats": score.nats_per_token,
                    "supernet_error": score.standard_error,
                    "alone_nats": float(np.mean(nats["test"])),
                    **_by_seed("alone_nats", self.seeds, nats["test"]),
                    **_by_seed("alone_valid_nats", self.seeds, nats["valid"]),
                }
            )
        check_validations(results)
        return rows


def check_seeds(seeds: Sequence[int], searches: Sequence[int]) -> None:
    """Raise ValueError where a training seed took part in a search."""
    if both := sorted(set(seeds) & set(searches)):
        raise ValueError(
            f"training seeds {_words(seeds)}: {both[0]} is a seed of the searches "
            f"({_words(searches)}); give --seeds that took no part in them"
        )


def _words(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _by_seed(name: str, seeds: Sequence[int], nats: Sequence[float]) -> dict[str, float]:
    return {f"{name}_{seed}": value for seed, value in zip(seeds, nats, strict=True)}


def rankings(rows: Sequence[dict[str, Any]], seeds: Sequence[int]) -> dict[str, Ranking]:
    """What may be said of each group of layouts."""
    found = {}
    for group in ("equal", "free"):
        own = [row for row in rows if row[group]]
        if len(own) < 2:
            continue
        columns = {"parameters": "parameters", "FLOPs": "flops_per_token"}
        if all(row["latency_ms"] is not None for row in own):
            columns["latency"] = "latency_ms"
        columns["attention slots"] = "attention"
        found[group] = ranking(
            np.array([[row[f"alone_nats_{seed}"] for row in own] for seed in seeds]),
            np.array([row["supernet_nats"] for row in own]),
            {
                name: np.array([float(row[column]) for row in own])
                for name, column in columns.items()
            },
        )
    return found
