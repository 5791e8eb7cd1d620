"""How well a SuperNet ranks layouts: they are scored by its weights, and trained alone."""

import json
import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assembly.architectures import derive
from assembly.costs import layout_costs
from assembly.fleet import Job, run_all
from assembly.inherited import Inherited
from assembly.layoutbench import check_key, key_of
from assembly.results import read_result
from assembly.timing import time_models
from assembly.workbench import Workbench
from experiment import with_settings
from model import build_model, layout_letters, load_architecture
from nas.derivation import Layout
from nas.latency import Latencies
from nas.layout_sample import Choice, equal_layouts, free_layouts
from nas.rank import Ranking, ranking
from nas.scoring import Score
from training.files import write_whole
from training.run_dir import commit
from training.signals import StopRequest

TOLERANCE = 0.03
_LEFT = ("*/**/*.safetensors", "**/model")


@dataclass(frozen=True)
class Sample:
    """The layouts of a rank harness.

    Attributes:
        target_flops: what those of one cost cost, within 3%.
        groups: "equal" and "free"; a layout may be in both.
    """

    target_flops: float
    groups: dict[str, list[Layout]]

    @property
    def layouts(self) -> list[Layout]:
        """Each layout once."""
        return list(dict.fromkeys(each for group in self.groups.values() for each in group))


@dataclass
class Ranked:
    """Layouts with what the SuperNet says of them and what training alone came to.

    Attributes:
        bench: the experiment.
        sample: the layouts.
        searches: seeds of the searches whose SuperNets score.
        seeds: of the trainings.
        steps: of a training; None: the experiment's own length.
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
        """Score every layout by the SuperNet's weights; take the folder.

        Raises:
            ValueError: the weights are not there, or the folder has rows of other settings.
            OSError: a file cannot be written.
        """
        inherited = Inherited(self.bench, self.searches, self.bench.experiment.derive.score_tokens)
        self.scores = {
            layout_letters(layout): inherited.score(layout) for layout in self.sample.layouts
        }
        path = self.folder / "key.json"
        key = key_of(self._trained)
        if path.exists():
            check_key(path, key)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(key | {"commit": commit()}, indent=1) + "\n")

    @property
    def _trained(self) -> Workbench:
        """The experiment as the layouts are trained."""
        if self.steps is None:
            return self.bench
        settings = {"retrain.steps": self.steps}
        shorter = with_settings(self.bench.experiment, settings, ["retrain.epochs"])
        return replace(self.bench, experiment=shorter)

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
            _clean(job.folder)
            (result,) = self._results(job.folder)
            with lock:
                count += 1
                nats = read_result(result)["valid"]["nats_per_token"]
                print(f"{count}/{len(jobs)} {job.name}: validation {nats:.4f} nats", flush=True)

        run_all(waiting, workers=workers, stop=stop, done=done)

    def _job(self, layout: Layout, seed: int) -> Job:
        letters = layout_letters(layout)
        settings = {"run.seed": seed, "derive.method": "layout", "derive.layout": letters}
        name = letters.replace(" ", "" if set(map(len, letters.split())) == {1} else "-")
        return Job(
            f"{letters}, seed {seed}",
            with_settings(self._trained.experiment, settings),
            ("derive", "retrain"),
            self.folder / "layouts" / name / f"seed-{seed}",
        )

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
        """One row for each layout."""
        rows = []
        for layout in self.sample.layouts:
            letters = layout_letters(layout)
            found = [
                read_result(self._results(self._job(layout, seed).folder)[0]) for seed in self.seeds
            ]
            nats = [each["valid"]["nats_per_token"] for each in found]
            score = self.scores[letters]
            rows.append(
                {
                    "layout": letters,
                    **{name: layout in group for name, group in self.sample.groups.items()},
                    "parameters": found[0]["parameters"],
                    "flops_per_token": found[0]["flops_per_token"],
                    "latency_ms": latencies.median_ms.get(letters),
                    "attention": sum(each.kind == "attention" for each in layout),
                    "supernet_nats": score.nats_per_token,
                    "supernet_error": score.standard_error,
                    "alone_nats": float(np.mean(nats)),
                    **{f"alone_nats_{s}": n for s, n in zip(self.seeds, nats, strict=True)},
                }
            )
        return rows


def sample_of(
    bench: Workbench, searches: Sequence[int], equal: int, free: int, seed: int
) -> Sample:
    """Draw the layouts; those of one cost cost what the searches' argmax costs, within 3%.

    Raises:
        ValueError: there is no finished search.
    """
    candidates = bench.experiment.model.completed_candidates()
    config = bench.experiment.derive.model_copy(
        update={"method": "argmax", "searches": list(searches), "gap": False}
    )
    chosen = derive(bench, config).slots
    labels = [candidate.label for candidate in candidates]
    target = tuple(labels.index(candidate.label) for candidate in chosen)
    cost = layout_costs(bench)
    flops = cost(chosen)

    def layout(choice: Choice) -> Layout:
        return tuple(candidates[k] for k in choice)

    def fits(choice: Choice) -> bool:
        return abs(cost(layout(choice)) - flops) <= TOLERANCE * flops

    equals = equal_layouts(target, len(candidates), equal, seed, fits) if equal else []
    frees = free_layouts(len(candidates), len(target), free, seed) if free else []
    groups = {"equal": equals, "free": frees}
    return Sample(flops, {name: [layout(c) for c in drawn] for name, drawn in groups.items()})


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


def _clean(folder: Path) -> None:
    """Remove what only a resume or a use of the model would need."""
    for pattern in _LEFT:
        for path in list(folder.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
