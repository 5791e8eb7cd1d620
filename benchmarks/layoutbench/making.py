"""Tables of all layouts of a small model, each trained alone; fresh seeds of their rows.

Nothing but the key beside a table says what its rows belong to (`pipeline.trainings`).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.keys import check_key, claim_key, key_of
from benchmarks.layoutbench.table import (
    LayoutTable,
    Row,
    all_layouts,
    as_csv,
    each_network_once,
    networks_of,
    read_table,
)
from model import ModelConfig, layout_letters, network_of, parse_layout
from nas.costs.budget import Limit, parse_amount
from nas.derivation.base import Networks
from pipeline.derive import reference_layout, request_of
from pipeline.experiment import Experiment
from pipeline.jobs import Job, layout_job, run_all, training_result
from pipeline.plan import RunPlan
from pipeline.run_files import read_result
from training.signals import StopRequest
from utils.files import write_whole

TABLE, KEY, LAYOUTS = "layoutbench.csv", "layoutbench.json", "layouts"
_MOST_LAYOUTS = 4096


def checked_table(path: Path, experiment: Experiment, inputs: Mapping[str, str]) -> LayoutTable:
    """Read a table; ValueError where it belongs to another experiment or another text."""
    check_key(path.with_suffix(".json"), key_of(experiment, inputs), "give another table")
    return read_table(path)


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
    """FLOPs per token at most, such as `0.75x` of what derive.reference costs."""
    reference = reference_layout(request_of(plan, plan.experiment.derive, []))
    return Limit(plan.costs, parse_amount("flops", amount).of(plan.costs(reference)))


def layouts_within(plan: RunPlan, layouts: Sequence[str], amount: str) -> list[str]:
    """The layouts that have a block and whose FLOPs are within a limit."""
    limit, tie_slots = flops_limit(plan, amount), plan.sizes["tie_slots"]
    slots = {layout: tuple(parse_layout(layout, plan.candidates)) for layout in layouts}
    return [
        layout
        for layout in layouts
        if network_of(slots[layout], tie_slots).order and limit.holds(slots[layout])
    ]


def train_layouts(
    jobs: Sequence[Job],
    *,
    total: int,
    key_file: Path,
    key: Mapping[str, Any],
    workers: int,
    stop: StopRequest,
    trained: Callable[[Job, dict[str, Any]], None],
) -> None:
    """Run the `layout_job`s, of `total`, that are not done; `key_file` says what results belong to.

    `trained` is called with each job and its result, one at a time.

    Raises:
        ValueError: the folder holds results under another key, or a training failed.
        Stopped: a signal came; everything is saved.
        OSError: a file cannot be written.
    """
    if not jobs:
        if key_file.exists():
            check_key(key_file, key)
        return
    claim_key(key_file, key)
    lock, count = threading.Lock(), total - len(jobs)

    def done(job: Job) -> None:
        nonlocal count
        path = training_result(job)
        assert path is not None, job.folder
        result = read_result(path)
        # Jobs end in several threads; what `trained` writes is one file.
        with lock:
            trained(job, result)
            count += 1
            nats = result["valid"]["nats_per_token"]
            print(f"{count}/{total} {job.name}: validation {nats:.4f} nats", flush=True)

    run_all(jobs, workers=workers, stop=stop, done=done)


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
        rows.append(_row(job.experiment.run.seed, result))
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


def _row(seed: int, result: dict[str, Any]) -> Row:
    return Row(
        layout=result["layout"].replace(" ", ""),
        seed=seed,
        parameters=result["parameters"],
        flops_per_token=result["flops_per_token"],
        valid_nats=result["valid"]["nats_per_token"],
        test_nats=result["test"]["nats_per_token"],
    )


@dataclass(frozen=True)
class Again:
    """A layout trained once more, beside the table's mean of its test nats."""

    row: Row
    mean_nats: float
    deviations: float  # from that mean, in standard deviations of one training


def train_again(
    plan: RunPlan, table: LayoutTable, layouts: Sequence[str], seed: int, **how: Any
) -> list[Again]:
    """Train layouts with a seed that the table lacks, by `make_table`, and compare."""
    fresh = read_table(make_table(plan, layouts, [seed], **how))
    mean, deviation = table.mean_nats("test"), table.pooled_deviation("test")
    rows = [(row, table.layout_of(row.layout)) for row in fresh.rows if row.seed == seed]
    return [
        Again(row, mean[layout], (row.test_nats - mean[layout]) / deviation)
        for row, layout in rows
        if layout is not None and layout in layouts
    ]
