"""The derived layout against its opponents: same steps, same text, same seeds."""

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model import Architecture, load_architecture, load_model
from nas.costs.latency import Latencies
from nas.opponents import OPPONENTS, NoOpponent
from nas.opponents.base import TOLERANCE, is_equal
from nas.statistics.intervals import at_cost, verdict
from pipeline.contest import equal_opponents
from pipeline.context import RunPlan, say
from pipeline.costs import time_models
from pipeline.derive import check_tokenizer, derive, write_architecture
from pipeline.parallel_training import Training, train_in_processes
from pipeline.pareto import SUMMARY
from pipeline.retrain import finish_retrain, retrain_trainer
from pipeline.run_files import check_validations, read_result
from training.console import announce
from training.evaluation import Evaluation
from utils.files import csv_of, read_object, write_whole

# The layout beside which costs are shown.
_PLAIN = "interleaved"
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
        role: searched, chosen, front or opponent.
        remarks: which opponents are the same network; of the chosen one also which there are not.
    """

    architecture: Architecture
    role: str
    remarks: list[str] = field(default_factory=list)

    def remark(self, line: str) -> None:
        """Print a remark and keep it for the table."""
        print(line)
        self.remarks.append(line)


def contestants(plan: RunPlan, front: Sequence[Architecture] = ()) -> list[Contestant]:
    """The chosen architecture, a front, and opponents; each network stands once.

    Every folder is opened before anything trains, so that nothing is refused hours later.

    Raises:
        ValueError: nothing was derived yet, the chosen architecture is of other sizes, an opponent
            cannot be made, or a folder holds another experiment.
    """
    chosen = _chosen(plan)
    say("preparing the opponents: their layouts, folders and forecasts of memory")
    searched = chosen.evidence is not None and bool(chosen.evidence.pi)
    entries = [Contestant(chosen, "searched" if searched else "chosen")]
    for architecture in front:
        if (twin := _twin(entries, architecture)) is not None:
            twin.remark(f"{architecture.name} = {twin.architecture.name}: of the front")
        else:
            entries.append(Contestant(architecture, "front"))
    for kind in plan.experiment.compare.opponents:
        if kind in OPPONENTS:
            _add_equal(plan, entries, kind)
        else:
            _add_derived(plan, entries, kind)
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
    if (twin := _twin(entries, architecture)) is None:
        _add(plan, entries, architecture)
        return
    names = f"{architecture.name} = {twin.architecture.name}"
    twin.remark(f"{names}: one network, trained and shown once")


def _twin(entries: Sequence[Contestant], architecture: Architecture) -> Contestant | None:
    """Who is the same network already."""
    same = (one for one in entries if one.architecture.network == architecture.network)
    return next(same, None)


def front_of(plan: RunPlan) -> list[Architecture]:
    """The architectures that derive.py --pareto named, the cheapest first.

    Raises:
        ValueError: there is no front, or it is damaged, or of another text.
    """
    path, remedy = plan.run_dir / SUMMARY, f"run derive.py {plan.run_dir} --pareto first"
    if not path.exists():
        raise ValueError(f"{path}: not found; {remedy}")
    names = read_object(path, remedy).get("front")
    if not isinstance(names, list) or not all(_is_file_name(name) for name in names):
        raise ValueError(f"{path}: front: expected a list of names; {remedy}")
    folder = plan.run_dir / "architectures"
    front = [load_architecture(folder / f"{name}.json") for name in names]
    for architecture in front:
        check_tokenizer(plan.prepared.tokenizer, architecture)
    return front


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name


def _add_equal(plan: RunPlan, entries: list[Contestant], kind: str) -> None:
    """Add networks of a kind that cost what the chosen one costs, as far as there are others."""
    compare = plan.experiment.compare
    wanted = {"random": compare.random_layouts, "permuted": compare.permutations}.get(kind, 1)
    taken = frozenset(entry.architecture.network for entry in entries)
    opponents = list[Architecture]()
    try:
        opponents = equal_opponents(plan, kind, entries[0].architecture, taken, wanted)
    except NoOpponent as error:
        entries[0].remark(str(error))
    for opponent in opponents:
        _add(plan, entries, opponent)
    if 0 < len(opponents) < wanted:
        entries[0].remark(f"{kind}: there are no other networks; {len(opponents)} of {wanted}")


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


def train_contestants(plan: RunPlan, entries: list[Contestant], jobs: int = 1) -> None:
    """Train every architecture with every seed, as retrain.py does it, and raise what it does.

    With more than one of the `jobs` the trainings run in processes first, as many at a time.
    """
    if jobs > 1:
        files = {entry.architecture.name: _file_of(plan, entry) for entry in entries}
        missing = [
            Training(name, file, seed)
            for seed in plan.experiment.compare.seeds
            for name, file in files.items()
            if not (plan.with_seed(seed).retrain_folder(name) / "result.json").exists()
        ]
        train_in_processes(plan, missing, jobs)
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


def _file_of(plan: RunPlan, entry: Contestant) -> Path:
    """The file of a contestant's architecture; the chosen one's is RUN/architecture.json."""
    if entry.role in ("searched", "chosen"):
        return plan.run_dir / "architecture.json"
    return plan.run_dir / "architectures" / f"{entry.architecture.name}.json"


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
    saved = _saved(rows, chosen, nats)
    table = {
        "verdict": "\n".join([*verdict(names[0], chosen, nats), *saved]),
        "remarks": [*equal_costs(rows), *(line for entry in entries for line in entry.remarks)],
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


def _saved(
    rows: Sequence[dict[str, Any]], chosen: Sequence[float], nats: Mapping[str, Sequence[float]]
) -> list[str]:
    """What the chosen layout costs and gives up beside the plain Transformer-XL; none without it.

    By latency, or where none was measured by FLOPs.
    """
    others = [row for row in rows[1:] if row["name"] == _PLAIN]
    if not others:
        return []
    one, other, name, key = rows[0], others[0], "latency", "latency_ms"
    if one[key] is None or other[key] is None:
        name, key = "FLOPs", "flops_per_token"
    return [at_cost(one[key] / other[key], name, _PLAIN, chosen, nats[_PLAIN])]


def equal_costs(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Which costs of the opponents are those of the chosen layout, within 3%."""
    keys = {"parameters": "parameters", "flops_per_token": "FLOPs", "latency_ms": "latency"}
    lines = list[str]()
    for row in rows[1:]:
        alike = [
            name
            for key, name in keys.items()
            if row[key] is not None and rows[0][key] and is_equal(row[key] / rows[0][key])
        ]
        lines.append(f"{row['name']}: {', '.join(alike) or 'nothing'}")
    head = f"equal to {rows[0]['name']} within {TOLERANCE:.0%}"
    return [f"{head}: {'; '.join(lines)}"] if lines else []


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
