"""The derived layout against its opponents: same steps, same text, same seeds."""

import csv
import io
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assembly.architectures import derive, write_architecture
from assembly.phases import finish_retrain, retrain_folder, retrain_phase
from assembly.workbench import Workbench
from model import Architecture, load_architecture, load_model
from nas.config import DeriveConfig
from nas.latency import Latencies, measure_latency
from nas.verdict import verdict
from training.evaluation import Evaluation
from training.files import write_whole

COLUMNS = (
    "name",
    "role",
    "layout",
    "n",
    "parameters",
    "flops_per_token",
    "latency_ms",
    "nats_per_token",
    "perplexity",
    "bits_per_byte",
    "valid_nats_per_token",
)


@dataclass(frozen=True)
class Contestant:
    """One architecture of the comparison."""

    architecture: Architecture
    role: str


def contestants(bench: Workbench) -> list[Contestant]:
    """The chosen architecture and its opponents; layouts that came out equal are kept once.

    Raises:
        ValueError: nothing was derived yet, or an opponent cannot be made.
    """
    path = bench.run_dir / "architecture.json"
    if not path.exists():
        raise ValueError(f"{path}: not found; run derive.py {bench.run_dir} first")
    chosen = load_architecture(path)
    entries = [Contestant(chosen, "searched")]
    for config in _opponents(bench, chosen):
        architecture = derive(bench, config)
        twin = next((e for e in entries if e.architecture.slots == architecture.slots), None)
        if twin is not None:
            print(f"{architecture.name}: the same layout as {twin.architecture.name}, left out")
            continue
        write_architecture(bench, architecture)
        entries.append(Contestant(architecture, "opponent"))
    return entries


def _opponents(bench: Workbench, chosen: Architecture) -> list[DeriveConfig]:
    """The settings of each opponent; a random one costs what the chosen layout costs."""
    derive_config, compare = bench.experiment.derive, bench.experiment.compare
    configs = []
    for method in compare.opponents:
        if method != "random":
            configs.append(derive_config.model_copy(update={"method": method}))
            continue
        assert chosen.costs is not None
        budget = {"method": method, "flops": chosen.costs.flops_per_token}
        configs += [
            derive_config.model_copy(update={**budget, "seed": seed})
            for seed in range(compare.random_layouts)
        ]
    return configs


def train_contestants(bench: Workbench, entries: list[Contestant]) -> None:
    """Train every architecture with every seed, as retrain.py does it.

    Raises:
        ValueError: a folder holds another experiment.
        Stopped, Diverged: as in a single retraining.
    """
    for seed in bench.experiment.compare.seeds:
        for entry in entries:
            seeded = with_seed(bench, seed)
            phase = retrain_phase(seeded, entry.architecture)
            phase.open()
            phase.run(seeded.experiment.run)
            finish_retrain(seeded, phase, entry.architecture, chosen=False)


def with_seed(bench: Workbench, seed: int) -> Workbench:
    """The same workbench with another seed."""
    run = bench.experiment.run.model_copy(update={"seed": seed})
    return replace(bench, experiment=bench.experiment.model_copy(update={"run": run}))


def finish_comparison(bench: Workbench, entries: list[Contestant]) -> None:
    """Measure latencies, write table and verdict, make the report, print it all."""
    from report.comparison import read_comparison, text_table
    from report.page import write_report

    latencies = _latencies(bench, entries)
    results = {entry.architecture.name: _results(bench, entry) for entry in entries}
    rows = [_row(entry, results[entry.architecture.name], latencies) for entry in entries]
    nats = {
        name: [result["test"]["nats_per_token"] for result in found]
        for name, found in results.items()
    }
    searched = entries[0].architecture.name
    lines = verdict(nats[searched], {k: v for k, v in nats.items() if k != searched})
    table = {
        "verdict": "\n".join(lines),
        "latency_note": latencies.note,
        "latency_key": latencies.key,
        "rows": rows,
        "results": results,
    }
    write_whole(bench.run_dir / "comparison.csv", _csv(rows))
    write_whole(bench.run_dir / "comparison.json", json.dumps(table, indent=1) + "\n")
    page = write_report(bench.run_dir)
    print("\n" + text_table(read_comparison(bench.run_dir)))
    print(f"report: {page}")


def _folder(bench: Workbench, entry: Contestant, seed: int) -> Path:
    return retrain_folder(with_seed(bench, seed), entry.architecture.name)


def _results(bench: Workbench, entry: Contestant) -> list[dict[str, Any]]:
    seeds = bench.experiment.compare.seeds
    return [json.loads((_folder(bench, entry, seed) / "result.json").read_text()) for seed in seeds]


def _latencies(bench: Workbench, entries: list[Contestant]) -> Latencies:
    compare = bench.experiment.compare
    models = {
        entry.architecture.name: load_model(_folder(bench, entry, compare.seeds[0]) / "model").to(
            bench.device
        )
        for entry in entries
    }
    return measure_latency(
        models,
        batch=compare.latency_batch,
        segment=bench.experiment.data.segment,
        repeats=compare.latency_repeats,
        device=bench.device,
    )


def _row(entry: Contestant, results: list[dict[str, Any]], latencies: Latencies) -> dict[str, Any]:
    """Means over seeds of nats and bits per byte; perplexity is exp of the mean nats."""

    def mean(split: str, measure: str) -> float:
        return statistics.fmean(result[split][measure] for result in results)

    test = results[0]["test"]
    nats = mean("test", "nats_per_token")
    total = Evaluation(nats=nats * test["tokens"], tokens=test["tokens"], bytes=test["bytes"])
    return {
        "name": entry.architecture.name,
        "role": entry.role,
        "layout": entry.architecture.letters(),
        "n": len(results),
        "parameters": results[0]["parameters"],
        "flops_per_token": results[0]["flops_per_token"],
        "latency_ms": latencies.median_ms.get(entry.architecture.name),
        "nats_per_token": nats,
        "perplexity": total.perplexity,
        "bits_per_byte": total.bits_per_byte,
        "valid_nats_per_token": mean("valid", "nats_per_token"),
    }


def _csv(rows: list[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
