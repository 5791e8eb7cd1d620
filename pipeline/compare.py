"""The derived layout against its opponents: same steps, same text, same seeds."""

import json
import statistics
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from model import Architecture, load_architecture, load_model
from nas.costs.latency import Latencies
from nas.derivation import NoOtherNetwork
from nas.derivation.base import Near
from nas.statistics.intervals import verdict
from pipeline.context import RunPlan, say
from pipeline.costs import time_models
from pipeline.derive import check_tokenizer, derive, write_architecture
from pipeline.retrain import finish_retrain, retrain_trainer
from pipeline.run_files import check_validations, read_result
from training.console import announce
from training.evaluation import Evaluation
from utils.files import csv_of, write_whole

# How far a random opponent's cost may be from the chosen layout's.
TOLERANCE = 0.05
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
    "word_perplexity",
    "valid_nats_per_token",
)


@dataclass
class Contestant:
    """One network of the comparison, by the layout that is trained.

    Attributes:
        role: searched, chosen or opponent.
        remarks: which opponents are the same network; of the chosen one also which there are not.
    """

    architecture: Architecture
    role: str
    remarks: list[str] = field(default_factory=list)

    def remark(self, line: str) -> None:
        """Print a remark and keep it for the table."""
        print(line)
        self.remarks.append(line)


def contestants(plan: RunPlan) -> list[Contestant]:
    """The chosen architecture and its opponents; each network stands once.

    Every folder is opened before anything trains, so that nothing is refused hours later.

    Raises:
        ValueError: nothing was derived yet, the chosen architecture is of other sizes, an opponent
            cannot be made, or a folder holds another experiment.
    """
    chosen = _chosen(plan)
    say("preparing the opponents: their layouts, folders and forecasts of memory")
    searched = chosen.evidence is not None and bool(chosen.evidence.pi)
    entries = [Contestant(chosen, "searched" if searched else "chosen")]
    for method in plan.experiment.compare.opponents:
        if method == "random":
            _add_random(plan, entries)
        else:
            _add_derived(plan, entries, method)
    for seed in plan.experiment.compare.seeds:
        for entry in entries:
            with closing(retrain_trainer(plan.with_seed(seed), entry.architecture)) as trainer:
                trainer.open()
    return entries


def _add(plan: RunPlan, entries: list[Contestant], opponent: Architecture) -> None:
    written = write_architecture(opponent, plan.experiment, plan.run_dir)
    entries.append(Contestant(written, "opponent"))


def _add_derived(plan: RunPlan, entries: list[Contestant], method: str) -> None:
    """Add an opponent, or its name to what is the same network already."""
    architecture = derive(plan, method=method)
    for entry in entries:
        if entry.architecture.network == architecture.network:
            names = f"{architecture.name} = {entry.architecture.name}"
            entry.remark(f"{names}: one network, trained and shown once")
            return
    _add(plan, entries, architecture)


def _add_random(plan: RunPlan, entries: list[Contestant]) -> None:
    """Add random networks that cost what the chosen one costs, as far as there are others."""
    chosen, wanted = entries[0].architecture, plan.experiment.compare.random_layouts
    labels = {candidate.label for candidate in chosen.slots}
    if unknown := labels - plan.costs.by_label.keys():
        raise ValueError(
            f"compare.opponents: random needs the chosen layout's candidates in model.candidates, "
            f"which lacks {', '.join(sorted(unknown))}"
        )
    near = Near(plan.costs, plan.costs(chosen.slots), TOLERANCE, "FLOPs per token")
    for seed in range(wanted):
        taken = frozenset(entry.architecture.network for entry in entries)
        try:
            opponent = derive(plan, taken, near, method="random", seed=seed)
        except NoOtherNetwork as error:
            entries[0].remark(f"{error}: {seed} of {wanted} random opponents")
            return
        _add(plan, entries, opponent)


def _chosen(plan: RunPlan) -> Architecture:
    path = plan.run_dir / "architecture.json"
    if not path.exists():
        raise ValueError(f"{path}: not found; run derive.py {plan.run_dir} first")
    chosen = load_architecture(path)
    check_tokenizer(plan.prepared.tokenizer, chosen)
    sizes: list[tuple[str, object, object]] = [
        ("d_model", chosen.d_model, plan.sizes["d_model"]),
        ("slots", len(chosen.slots), len(plan.slots)),
        ("tie_slots", chosen.tie_slots, plan.sizes["tie_slots"]),
        ("softmax", chosen.softmax, plan.softmax),
    ]
    candidates = {candidate.label: candidate for candidate in plan.candidates}
    for slot in chosen.slots:
        if slot.label in candidates:
            theirs, ours = slot.model_dump(), candidates[slot.label].model_dump()
            sizes += [
                (f"candidates[{slot.label}].{name}", theirs.get(name), ours.get(name))
                for name in sorted(theirs.keys() | ours.keys())
            ]
    for key, its_size, our_size in sizes:
        if its_size != our_size:
            raise ValueError(
                f"{path}: {key} {its_size}, but model.{key} is {our_size}: opponents of other "
                "sizes are no comparison; derive again, or use the experiment it came from"
            )
    return chosen


def train_contestants(plan: RunPlan, entries: list[Contestant]) -> None:
    """Train every architecture with every seed, as retrain.py does it, and raise what it does."""
    shown = set[str]()
    trainings = [(seed, entry) for seed in plan.experiment.compare.seeds for entry in entries]
    for number, (seed, entry) in enumerate(trainings, start=1):
        seeded, architecture = plan.with_seed(seed), entry.architecture
        with closing(retrain_trainer(seeded, architecture)) as trainer:
            trainer.open()
            begins = not trainer.state.step
            done = ", which is done" if trainer.state.step >= trainer.steps else ""
            announce(
                f"training {number} of {len(trainings)}: {architecture.name}, seed {seed}{done}"
            )
            trainer.run(seeded.experiment.run, shown)
            if begins:
                shown |= set(trainer.summary.splitlines())
            finish_retrain(seeded, trainer, architecture)


def finish_comparison(plan: RunPlan, entries: list[Contestant]) -> None:
    """Measure latencies, write table and verdict, make the report, print it all."""
    from report.comparison import read_comparison, text_table
    from report.page import write_report

    plans = [plan.with_seed(seed) for seed in plan.experiment.compare.seeds]
    names = [entry.architecture.name for entry in entries]
    folders = {name: [seeded.retrain_folder(name) for seeded in plans] for name in names}
    results = {
        name: [read_result(folder / "result.json") for folder in of_seeds]
        for name, of_seeds in folders.items()
    }
    check_validations(results)
    models = {name: load_model(of_seeds[0] / "model") for name, of_seeds in folders.items()}
    latencies = time_models(plan, models)
    rows = [_row(entry, results[entry.architecture.name], latencies) for entry in entries]
    nats = {
        name: [result["test"]["nats_per_token"] for result in of_seeds]
        for name, of_seeds in results.items()
    }
    chosen = nats.pop(names[0])
    table = {
        "verdict": "\n".join(verdict(names[0], chosen, nats)),
        "remarks": [remark for entry in entries for remark in entry.remarks],
        "latency_note": latencies.note,
        "latency_key": latencies.key,
        "rows": rows,
        "results": results,
    }
    write_whole(plan.run_dir / "comparison.csv", csv_of(rows, COLUMNS))
    write_whole(plan.run_dir / "comparison.json", json.dumps(table, indent=1) + "\n")
    announce("drawing the report")
    page = write_report(plan.run_dir)
    print("\n" + text_table(read_comparison(plan.run_dir)))
    print(f"report: {page}")


def _row(entry: Contestant, results: list[dict[str, Any]], latencies: Latencies) -> dict[str, Any]:
    """Means over seeds of nats and bits per byte; perplexity is exp of the mean nats."""

    def mean(split: str, measure: str) -> float:
        return statistics.fmean(result[split][measure] for result in results)

    test = results[0]["test"]
    nats = mean("test", "nats_per_token")
    total = Evaluation(
        nats=nats * test["tokens"],
        tokens=test["tokens"],
        bytes=test["bytes"],
        words=test.get("words"),
    )
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
        "word_perplexity": total.word_perplexity,
        "valid_nats_per_token": mean("valid", "nats_per_token"),
    }
