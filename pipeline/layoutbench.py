"""LayoutBench: every layout of a small model trained alone, and searches judged by that table."""

import csv
import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from model import Architecture, layout_letters, load_architecture, parse_layout
from nas.costs.latency import Latencies
from nas.derivation import RULES
from nas.derivation.base import Networks
from nas.search.flops import TRAINING, search_flops
from nas.search.plan import SearchPlan
from nas.tabular.regret import Difference, Regrets, difference, mean_nats, random_search, regret_of
from nas.tabular.table import (
    LayoutTable,
    Row,
    all_layouts,
    as_csv,
    each_network_once,
    networks_of,
    read_table,
)
from pipeline.build import language_model, time_models
from pipeline.context import Workbench
from pipeline.derive import derive
from pipeline.experiment import with_settings
from pipeline.jobs import Job, run_all
from pipeline.results import read_result
from pipeline.search import VALIDATED
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import write_whole

TABLE, KEY = "layoutbench.csv", "layoutbench.json"
_OWN_TABLE = (
    "make a table of your own (built-in texts differ between versions of Python) and give --table"
)
_MOST_LAYOUTS = 4096
REGRET_FILE = "regret.json"


def layouts_of(bench: Workbench) -> list[str]:
    """Every network of the experiment's candidates and slots, by a layout in letters.

    Raises:
        ValueError: a candidate has no letter of its own, or there are too many networks.
    """
    model = bench.experiment.model
    candidates = model.completed_candidates()
    kinds = [layout_letters([candidate]) for candidate in candidates]
    if any(len(letter) != 1 for letter in kinds) or len(set(kinds)) < len(kinds):
        raise ValueError(
            "model.candidates: LayoutBench names layouts by letters, so the candidates must be "
            f"default ones of different kinds; found {', '.join(kinds)}"
        )
    layouts = list[str]()
    if Networks(candidates, model.tie_slots).listed(model.slots):
        layouts = all_layouts("".join(kinds), model.slots, model.tie_slots)
    if (count := len(layouts) or len(kinds) ** model.slots) > _MOST_LAYOUTS:
        raise ValueError(
            f"model.slots: {len(kinds)} candidates in {model.slots} slots make {count:,} layouts, "
            f"at most {_MOST_LAYOUTS:,} are trained; take fewer slots or candidates"
        )
    return layouts


def key_of(bench: Workbench) -> dict[str, Any]:
    """What a table belongs to: rows under another key are not comparable with its rows."""
    run = bench.experiment.run.model_dump(
        mode="json", include={"precision", "threads", "validate_every"}
    )
    sections = bench.experiment.model_dump(mode="json", include={"data", "model", "retrain"})
    return {"run": run, **sections, **bench.inputs()}


def make_table(
    bench: Workbench,
    layouts: Sequence[str],
    seeds: Sequence[int],
    *,
    workers: int,
    stop: StopRequest,
) -> Path:
    """Train what is missing and write RUN/layoutbench.csv, a row at a time.

    A network that the table has by another layout is not missing.

    Raises:
        ValueError: the folder holds rows under another key, or a training failed.
        Stopped: a signal came; everything is saved.
        OSError: a file cannot be written.
    """
    path, key_path = bench.run_dir / TABLE, bench.run_dir / KEY
    key = key_of(bench)
    known = check_key(key_path, key) if key_path.exists() else {}
    rows = list(read_table(path).rows) if path.exists() else []
    tie_slots = bench.experiment.model.tie_slots
    networks = networks_of([*layouts, *(row.layout for row in rows)], tie_slots)
    there = {(networks[row.layout], row.seed) for row in rows}
    jobs = [
        _job(bench, layout, seed)
        for seed in seeds
        for layout in layouts
        if (networks[layout], seed) not in there
    ]
    bench.run_dir.mkdir(parents=True, exist_ok=True)
    if jobs:
        known = known | key | {"commit": commit()}
        write_whole(key_path, json.dumps(known, indent=1) + "\n")
    lock, whole = threading.Lock(), len(layouts) * len(seeds)

    def done(job: Job) -> None:
        row = row_of(job.folder, job.experiment.run.seed)
        with lock:
            rows.append(row)
            write_whole(path, as_csv(each_network_once(rows, tie_slots)))
            print(
                f"{len(rows)}/{whole} {row.layout}, seed {row.seed}: validation "
                f"{row.valid_nats:.4f}, test {row.test_nats:.4f} nats",
                flush=True,
            )

    run_all(jobs, workers=workers, stop=stop, done=done)
    return path


@dataclass(frozen=True)
class Remade:
    """A layout trained once more.

    Attributes:
        row: the new training.
        mean_nats: of the table's test nats.
        deviations: how far the new ones lie from it, in standard deviations of one training.
    """

    row: Row
    mean_nats: float
    deviations: float


def check_table(bench: Workbench, table: Path) -> LayoutTable:
    """The whole table, where it belongs to this experiment and this text.

    Raises:
        ValueError: it belongs to another, is damaged, or lacks rows.
        OSError: it, or the JSON file beside it, cannot be read.
    """
    found = read_table(table)
    found.check_whole(table)
    check_key(table.with_suffix(".json"), key_of(bench), _OWN_TABLE)
    return found


def remake(
    bench: Workbench, table: LayoutTable, layouts: Sequence[str], seed: int, **how: Any
) -> list[Remade]:
    """Train layouts with a seed that the table lacks, and compare.

    Raises:
        ValueError, Stopped, OSError: as `make_table`.
    """
    made = read_table(make_table(bench, layouts, [seed], **how))
    mean, deviation = mean_nats(table, "test"), table.pooled_deviation("test")
    found = [(row, table.layout_of(row.layout)) for row in made.rows if row.seed == seed]
    return [
        Remade(row, mean[layout], (row.test_nats - mean[layout]) / deviation)
        for row, layout in found
        if layout is not None and layout in layouts
    ]


def add_latencies(bench: Workbench, path: Path) -> Latencies:
    """Time the forward passes of all layouts in turn and write them into the table.

    Where the machine was busy the table stays as it is.

    Raises:
        ValueError: the table is damaged, or belongs to another experiment.
        OSError: it cannot be read or written.
    """
    key_path = path.with_suffix(".json")
    known = check_key(key_path, key_of(bench))
    table, candidates = read_table(path), bench.experiment.model.completed_candidates()
    models = {
        layout: language_model(bench, [(slot,) for slot in parse_layout(layout, candidates)])
        for layout in table.layouts
    }
    found = time_models(bench, models)
    if found.median_ms:
        rows = [replace(row, latency_ms=found.median_ms[row.layout]) for row in table.rows]
        write_whole(path, as_csv(rows))
        write_whole(key_path, json.dumps(known | {"latency": found.key}, indent=1) + "\n")
    return found


def row_of(folder: Path, seed: int) -> Row:
    """The row of a training that is done."""
    (path,) = folder.glob(f"retrain/*/seed-{seed}/result.json")
    found = read_result(path)
    return Row(
        layout=found["layout"].replace(" ", ""),
        seed=seed,
        parameters=found["parameters"],
        flops_per_token=found["flops_per_token"],
        valid_nats=found["valid"]["nats_per_token"],
        test_nats=found["test"]["nats_per_token"],
    )


def _job(bench: Workbench, layout: str, seed: int) -> Job:
    settings = {"run.seed": seed, "derive.method": "layout", "derive.layout": layout}
    return Job(
        f"{layout}, seed {seed}",
        with_settings(bench.experiment, settings),
        ("derive", "retrain"),
        bench.run_dir / "layouts" / layout / f"seed-{seed}",
    )


def check_key(
    path: Path, key: dict[str, Any], remedy: str = "give another --run"
) -> dict[str, Any]:
    """What the JSON file beside the rows says.

    Args:
        path: of the file.
        key: what the rows must belong to.
        remedy: what to do where they do not.

    Raises:
        ValueError: the rows belong to another key.
        OSError: it cannot be read.
    """
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no JSON, or not even text
        raise ValueError(f"{path}: {error}; {remedy}") from None
    if not isinstance(there, dict):
        raise ValueError(f"{path}: expected an object, found {type(there).__name__}; {remedy}")
    for name, value in json.loads(json.dumps(key)).items():
        if there.get(name) != value:
            name, theirs, ours = _first_difference(name, there.get(name), value)
            raise ValueError(
                f"{path}: {name} is {theirs}, now {ours}; rows under another key are no "
                f"comparison: {remedy}"
            )
    return there


def _first_difference(name: str, theirs: Any, ours: Any) -> tuple[str, Any, Any]:
    """The first key within two different values in which they differ, with what each has there."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if theirs.get(key) != ours.get(key):
                return _first_difference(f"{name}.{key}", theirs.get(key), ours.get(key))
    return name, theirs, ours


@dataclass(frozen=True)
class Found:
    """What the searches of several seeds came to.

    Attributes:
        layouts: the chosen ones, in the order of the seeds.
        regrets: theirs.
        cost: of one search in trainings of a layout of mean cost, its layouts' scores included,
            the training of the chosen one not.
        random_regret: mean regret of random search at equal cost.
        trainings: how many layouts random search trains for that.
        difference: the searches' mean regret less random search's.
        rules: the layouts of the rules, which cost one training each, and their regrets.
    """

    layouts: tuple[str, ...]
    regrets: Regrets
    cost: float
    random_regret: float
    trainings: int
    difference: Difference
    rules: Mapping[str, tuple[str, float]]


def search_all(bench: Workbench, seeds: Sequence[int], *, workers: int, stop: StopRequest) -> None:
    """Search and derive with every seed, each in RUN/seed-N; what is done already stays.

    Raises:
        ValueError: a run failed.
        Stopped: a signal came; everything is saved.
    """
    experiment = bench.experiment
    scripts = ("derive",) if experiment.derive.method in RULES else ("search", "derive")
    jobs = [
        Job(f"seed {seed}", with_settings(experiment, _seeds(seed)), scripts, folder)
        for seed, folder in _folders(bench, seeds).items()
    ]
    run_all(
        jobs, workers=workers, stop=stop, done=lambda job: print(f"{job.name}: done", flush=True)
    )


def weigh(bench: Workbench, seeds: Sequence[int], table: LayoutTable, *, replays: int) -> Found:
    """Read what the searches chose, weigh it and write RUN/regret.json.

    Random search trains as many layouts as one search and the training of its layout cost,
    rounded up.

    Raises:
        ValueError: a chosen layout is not in the table, or an architecture is damaged.
        OSError: a file cannot be read or written.
    """
    folders = _folders(bench, seeds)
    chosen = [load_architecture(folder / "architecture.json") for folder in folders.values()]
    layouts = tuple(_letters(architecture) for architecture in chosen)
    cost = max(_cost(bench, folder) for folder in folders.values())
    trainings = min(math.ceil(cost + 1.0), len(table.layouts))
    random = random_search(table, trainings, replays=replays, seed=0)
    found = Found(
        layouts=layouts,
        regrets=regret_of(table, layouts),
        cost=cost,
        random_regret=random.mean,
        trainings=trainings,
        difference=difference(table, layouts, random),
        rules=_rules(bench, table),
    )
    parts = {
        "seeds": list(seeds),
        "search": bench.experiment.search.model_dump(mode="json"),
        "derive": bench.experiment.derive.model_dump(mode="json"),
        "commit": commit(),
        **asdict(found),
    }
    write_whole(bench.run_dir / REGRET_FILE, json.dumps(parts, indent=1) + "\n")
    return found


def _rules(bench: Workbench, table: LayoutTable) -> dict[str, tuple[str, float]]:
    """What nobody has to search for."""
    if not {"attention", "dense"} <= {each.kind for each in bench.experiment.model.candidates}:
        return {}
    found = {}
    for name in (name for name in RULES if name not in ("layout", "random")):
        config = bench.experiment.derive.model_copy(update={"method": name})
        try:
            layout = _letters(derive(bench, config))
        except ValueError:  # it needs more slots
            continue
        found[name] = layout, regret_of(table, [layout]).mean
    return found


def _letters(architecture: Architecture) -> str:
    return architecture.letters().replace(" ", "")


def _seeds(seed: int) -> dict[str, int]:
    # A method that draws must draw anew, or several seeds would be one.
    return {"run.seed": seed, "derive.seed": seed}


def _folders(bench: Workbench, seeds: Sequence[int]) -> dict[int, Path]:
    return {seed: bench.run_dir / f"seed-{seed}" for seed in seeds}


def _cost(bench: Workbench, folder: Path) -> float:
    """A search's FLOPs over those of training a layout whose slots cost the candidates' mean.

    Both validate as often; a search validates the soft net and the one-hot one, or some layouts
    where alpha does not learn.
    """
    experiment, costs = bench.experiment, bench.costs
    if experiment.derive.method in RULES:
        return 0.0
    flops, slots = list(costs.by_label.values()), experiment.model.slots
    layout = costs.rest + slots * sum(flops) / len(flops)
    plan = SearchPlan(experiment.search, bench.search_steps, memory=0, segment=1)
    tokens, valid = experiment.data.batch * experiment.data.segment, _valid_tokens(bench)
    steps, every = bench.stages.steps, experiment.run.validate_every
    soft = costs.rest + slots * sum(flops)
    validated = soft + layout if experiment.search.alpha_learns else VALIDATED * layout
    spent = tokens * sum(search_flops(plan, flops, costs.rest, slots))
    spent += _validations(plan.steps, every) * valid * validated
    spent += _scored(folder) * min(experiment.derive.score_tokens or valid, valid) * layout
    training = tokens * steps * TRAINING + _validations(steps, every) * valid
    return spent / (layout * training)


def _validations(steps: int, every: int) -> int:
    """How often a phase validates: every so many steps, and at its last one."""
    return math.ceil(steps / every)


def _valid_tokens(bench: Workbench) -> int:
    return len(bench.prepared.tokens["valid"])


def _scored(folder: Path) -> int:
    """How many layouts the derivation scored by the SuperNet's weights."""
    name = load_architecture(folder / "architecture.json").name
    path = folder / "architectures" / f"{name}.csv"
    if not path.exists():
        return 0
    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.reader(file)) - 1
