"""LayoutBench: every layout of a small model trained alone, and searches judged by that table."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from model import (
    Architecture,
    ModelConfig,
    layout_letters,
    load_architecture,
    network_of,
    parse_layout,
)
from nas.costs.budget import Limit, parse_amount
from nas.costs.latency import Latencies
from nas.derivation import RULES, TRAINED
from nas.derivation.base import Networks
from nas.search.plan import TRAINING, search_flops
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
from pipeline.context import RunPlan
from pipeline.costs import time_models
from pipeline.derive import derive, reference_layout, request_of
from pipeline.experiment import Experiment
from pipeline.jobs import Job, layout_job, run_all, train_layouts
from pipeline.search import VALIDATED
from pipeline.seeds import seeded
from pipeline.table_key import check_key, key_of
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import write_whole

TABLE, KEY, LAYOUTS = "layoutbench.csv", "layoutbench.json", "layouts"
_OWN_TABLE = (
    "make a table of your own (built-in texts differ between versions of Python) and give --table"
)
_MOST_LAYOUTS = 4096
REGRET_FILE = "regret.json"
# What a training costs of one of full length.
_LENGTHS = {"half": 0.5, "full": 1.0}


def layouts_of(model: ModelConfig) -> list[str]:
    """Every network of the experiment's candidates and slots, by a layout in letters.

    Raises:
        ValueError: a candidate has no letter of its own, or there are too many networks.
    """
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


def flops_limit(plan: RunPlan, amount: str) -> Limit:
    """FLOPs per token at most, such as `0.75x` of what derive.reference costs.

    Raises:
        ValueError: it is no amount of FLOPs.
    """
    try:
        parsed = parse_amount("flops", amount)
    except ValueError as error:
        raise ValueError(f"--within: {error}") from None
    reference = reference_layout(request_of(plan, plan.experiment.derive, []))
    return Limit(plan.costs, parsed.of(plan.costs(reference)))


def layouts_within(plan: RunPlan, layouts: Sequence[str], amount: str) -> list[str]:
    """The layouts that have a block and whose FLOPs are within a limit.

    Raises:
        ValueError: it is no amount of FLOPs, or no layout is within it.
    """
    limit, tie_slots = flops_limit(plan, amount), plan.sizes["tie_slots"]
    slots = {layout: tuple(parse_layout(layout, plan.candidates)) for layout in layouts}
    within = [
        layout
        for layout in layouts
        if network_of(slots[layout], tie_slots).order and limit.holds(slots[layout])
    ]
    if not within:
        raise ValueError(f"--within {amount}: no layout with a block costs so little; give more")
    return within


def make_table(
    plan: RunPlan, layouts: Sequence[str], seeds: Sequence[int], *, workers: int, stop: StopRequest
) -> Path:
    """Train what is missing as `train_layouts` does; write RUN/layoutbench.csv, a row at a time.

    A network that the table has by another layout is not missing.
    """
    path, experiment = plan.run_dir / TABLE, plan.experiment
    rows = list(read_table(path).rows) if path.exists() else []
    tie_slots = experiment.model.tie_slots
    networks = networks_of([*layouts, *(row.layout for row in rows)], tie_slots)
    trained = {(networks[row.layout], row.seed) for row in rows}
    jobs = [
        layout_job(experiment, layout, seed, plan.run_dir / LAYOUTS)
        for seed in seeds
        for layout in layouts
        if (networks[layout], seed) not in trained
    ]

    def add_row(job: Job, result: dict[str, Any]) -> None:
        rows.append(
            Row(
                layout=result["layout"].replace(" ", ""),
                seed=job.experiment.run.seed,
                parameters=result["parameters"],
                flops_per_token=result["flops_per_token"],
                valid_nats=result["valid"]["nats_per_token"],
                test_nats=result["test"]["nats_per_token"],
            )
        )
        write_whole(path, as_csv(each_network_once(rows, tie_slots)))

    train_layouts(
        jobs,
        total=len(layouts) * len(seeds),
        key_file=plan.run_dir / KEY,
        key=key_of(experiment, plan.inputs()),
        workers=workers,
        stop=stop,
        trained=add_row,
    )
    return path


@dataclass(frozen=True)
class Remade:
    """A layout trained once more, beside the table's mean of its test nats."""

    row: Row
    mean_nats: float
    deviations: float  # from that mean, in standard deviations of one training


def check_table(table: Path, key: Mapping[str, Any]) -> LayoutTable:
    """The whole table, where it belongs to this experiment and this text.

    Raises:
        ValueError: it belongs to another, is damaged, or lacks rows.
    """
    rows = read_table(table)
    rows.check_whole(table)
    check_key(table.with_suffix(".json"), key, _OWN_TABLE)
    return rows


def remake(
    plan: RunPlan, table: LayoutTable, layouts: Sequence[str], seed: int, **how: Any
) -> list[Remade]:
    """Train layouts with a seed that the table lacks, by `make_table`, and compare."""
    fresh = read_table(make_table(plan, layouts, [seed], **how))
    mean, deviation = mean_nats(table, "test"), table.pooled_deviation("test")
    rows = [(row, table.layout_of(row.layout)) for row in fresh.rows if row.seed == seed]
    return [
        Remade(row, mean[layout], (row.test_nats - mean[layout]) / deviation)
        for row, layout in rows
        if layout is not None and layout in layouts
    ]


def add_latencies(plan: RunPlan, path: Path) -> Latencies:
    """Time the forward passes of all layouts in turn and write them into the table.

    Where the machine was busy the table stays as it is.

    Raises:
        ValueError: the table is damaged, or belongs to another experiment.
    """
    key_path = path.with_suffix(".json")
    known = check_key(key_path, key_of(plan.experiment, plan.inputs()))
    table = read_table(path)
    models = {
        layout: plan.network([[slot] for slot in parse_layout(layout, plan.candidates)])
        for layout in table.layouts
    }
    latencies = time_models(plan, models)
    if latencies.median_ms:
        rows = [replace(row, latency_ms=latencies.median_ms[row.layout]) for row in table.rows]
        write_whole(path, as_csv(rows))
        write_whole(key_path, json.dumps(known | {"latency": latencies.key}, indent=1) + "\n")
    return latencies


@dataclass(frozen=True)
class SearchRegrets:
    """What the searches of several seeds are worth on a table.

    Attributes:
        layouts: the chosen ones, in the order of the seeds.
        regrets: theirs.
        cost: of one search in trainings of a layout of mean cost, its layouts' scores and what the
            derivation trained included, the training of the chosen one not.
        random_regret: mean regret of random search at equal cost, with so many `trainings`.
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


def search_all(
    experiment: Experiment, run_dir: Path, seeds: Sequence[int], *, workers: int, stop: StopRequest
) -> None:
    """Search and derive with every seed, each in RUN/seed-N, as `run_all` runs jobs."""
    scripts = ("derive",) if experiment.derive.method in RULES else ("search", "derive")
    jobs = [
        Job(f"seed {seed}", seeded(experiment, seed), scripts, run_dir / f"seed-{seed}")
        for seed in seeds
    ]
    run_all(
        jobs, workers=workers, stop=stop, done=lambda job: print(f"{job.name}: done", flush=True)
    )


def weigh(
    plan: RunPlan, seeds: Sequence[int], table: LayoutTable, *, replays: int
) -> SearchRegrets:
    """Read what the searches chose, weigh it and write RUN/regret.json.

    Random search trains as many layouts as one search and the training of its layout cost,
    rounded up.

    Raises:
        ValueError: a chosen layout is not in the table, or an architecture is damaged.
    """
    folders = [plan.run_dir / f"seed-{seed}" for seed in seeds]
    chosen = [load_architecture(folder / "architecture.json") for folder in folders]
    layouts = tuple(_letters(architecture) for architecture in chosen)
    dearest = max(_cost_of(plan, folder, len(table.layouts)) for folder in folders)
    cost = dearest / _mean_flops(plan)
    trainings = min(math.ceil(cost + 1.0), len(table.layouts))
    random = random_search(table, trainings, replays=replays, seed=0)
    weighed = SearchRegrets(
        layouts=layouts,
        regrets=regret_of(table, layouts),
        cost=cost,
        random_regret=random.mean,
        trainings=trainings,
        difference=difference(table, layouts, random),
        rules=_rules(plan, table),
    )
    parts = {
        "seeds": list(seeds),
        **plan.experiment.model_dump(mode="json", include={"search", "derive"}),
        "commit": commit(),
        **asdict(weighed),
    }
    write_whole(plan.run_dir / REGRET_FILE, json.dumps(parts, indent=1) + "\n")
    return weighed


def _rules(plan: RunPlan, table: LayoutTable) -> dict[str, tuple[str, float]]:
    if not {"attention", "dense"} <= {candidate.kind for candidate in plan.candidates}:
        return {}
    regrets = {}
    for name in (name for name in RULES if name not in ("layout", "random")):
        try:
            layout = _letters(derive(plan, method=name))
        except ValueError:  # it needs more slots
            continue
        regrets[name] = layout, regret_of(table, [layout]).mean
    return regrets


def _mean_flops(plan: RunPlan) -> float:
    """Of a layout of the experiment, per token: the mean over all of them."""
    flops = plan.costs.by_label.values()
    return plan.costs.rest + len(plan.slots) * sum(flops) / len(flops)


def _letters(architecture: Architecture) -> str:
    return architecture.letters().replace(" ", "")


def _cost_of(plan: RunPlan, folder: Path, networks: int) -> float:
    """What search and derivation in a folder cost, as `search_cost` has it."""
    derive, name = plan.experiment.derive, load_architecture(folder / "architecture.json").name
    path = folder / "architectures" / f"{name}.csv"
    if derive.method in RULES:
        return 0.0
    if derive.method not in TRAINED:
        return search_cost(plan, _scored(path))
    # How many layouts it scored to propose some is not kept: as many as it may.
    most = derive.top if plan.experiment.search.alpha_learns else derive.evaluations
    return search_cost(plan, min(most, networks)) + trained_flops(path)


def search_cost(plan: RunPlan, scored: int) -> float:
    """What a search and the scores of so many layouts cost.

    Over the forward FLOPs per token of a layout it is the number of that layout's trainings that
    cost as much. Both validate as often; a search validates the soft net and the one-hot one, or
    some layouts where alpha does not learn.
    """
    experiment, costs = plan.experiment, plan.costs
    flops, slots = list(costs.by_label.values()), len(plan.slots)
    layout = _mean_flops(plan)
    schedules = plan.schedules()
    tokens = experiment.data.batch * experiment.data.segment
    valid = len(plan.prepared.tokens["valid"])
    steps, every = plan.stages.steps, experiment.run.validate_every
    # A phase validates every so many steps, and at its last one.
    in_search, in_training = math.ceil(schedules.steps / every), math.ceil(steps / every)
    soft = costs.rest + slots * sum(flops)
    validated = soft + layout if experiment.search.alpha_learns else VALIDATED * layout
    spent = tokens * sum(search_flops(schedules, flops, costs.rest, slots))
    spent += in_search * valid * validated
    spent += scored * min(experiment.derive.score_tokens or valid, valid) * layout
    return spent / (tokens * steps * TRAINING + in_training * valid)


def trained_flops(path: Path) -> float:
    """What the trainings in a derivation's table cost, in FLOPs per token at full length.

    Raises:
        ValueError: it is damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            cost = sum(_LENGTHS[row["length"]] * float(row["flops_per_token"]) for row in rows)
        if not 0 < cost < math.inf:
            raise ValueError(f"they cost {cost}")
    except (csv.Error, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: not a table of trainings ({error}); start the same command again"
        ) from None
    return cost


def _scored(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.reader(file)) - 1
