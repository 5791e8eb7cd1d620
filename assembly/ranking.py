"""How well a SuperNet ranks layouts: they are scored by its weights, and trained alone."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assembly.fleet import Job, run_all
from assembly.inherited import Inherited
from assembly.layoutbench import check_key, key_of
from assembly.lengths import retrain_stages
from assembly.names import layout_name
from assembly.rank_sample import Sample
from assembly.results import check_validations, read_result
from assembly.sweeping.cleaning import remove_weights
from assembly.timing import time_models
from assembly.workbench import Workbench
from experiment import with_settings
from model import build_model, layout_letters, load_architecture
from nas.costs.latency import Latencies
from nas.derivation import Layout
from nas.statistics.kendall import Ranking, ranking
from nas.statistics.paired_scores import Score
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import write_whole


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
        return self.steps or max(1, retrain_stages(self.bench).first // 2)

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
