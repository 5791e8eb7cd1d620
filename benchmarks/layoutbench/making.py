"""Tables of all layouts of a small model, each trained alone; which layouts there are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.keys import check_key, key_of
from benchmarks.layout_rows import FIGURES, claim, rows_of, train_rows
from benchmarks.layoutbench.table import LayoutTable, all_layouts, read_table
from model import ModelConfig, layout_letters, network_of, parse_layout
from nas.costs.budget import Limit, parse_amount
from nas.derivation import reference_layout
from nas.derivation.base import Networks
from pipeline.experiment import Experiment
from pipeline.jobs import layout_job
from pipeline.plan import RunPlan
from training.signals import StopRequest

TABLE, LAYOUTS = "layoutbench.csv", "layouts"
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
    if Networks(candidates, model.tie_blocks).listed(model.n_blocks):
        layouts = all_layouts("".join(kinds), model.n_blocks, model.tie_blocks)
    if (count := len(layouts) or len(kinds) ** model.n_blocks) > _MOST_LAYOUTS:
        raise ValueError(
            f"model.n_blocks: {len(kinds)} candidates, {model.n_blocks} blocks: {count:,} layouts, "
            f"at most {_MOST_LAYOUTS:,} are trained; take fewer slots or candidates"
        )
    return layouts


def flops_limit(plan: RunPlan, amount: str) -> Limit:
    """FLOPs per token at most, such as `0.75x` of what derive.reference costs."""
    reference = reference_layout(plan.request(plan.experiment.derive, []))
    return Limit(plan.costs, parse_amount("flops", amount).of(plan.costs(reference)))


def layouts_within(plan: RunPlan, layouts: Sequence[str], amount: str) -> list[str]:
    """The layouts that have a block and whose FLOPs are within a limit."""
    limit, tie_blocks = flops_limit(plan, amount), plan.sizes["tie_blocks"]
    slots = {layout: tuple(parse_layout(layout, plan.candidates)) for layout in layouts}
    return [
        layout
        for layout in layouts
        if network_of(slots[layout], tie_blocks).order and limit.holds(slots[layout])
    ]


def make_table(
    plan: RunPlan, layouts: Sequence[str], seeds: Sequence[int], *, workers: int, stop: StopRequest
) -> Path:
    """Train what RUN/layoutbench.csv lacks of layouts of different networks; return its path."""
    path = plan.run_dir / TABLE
    claim(path, plan)
    known = {(row["layout"], int(row["seed"])) for row in rows_of(path)}
    trainings = [
        (
            layout_job(plan.experiment, layout, seed, plan.run_dir / LAYOUTS),
            {"layout": layout, "seed": str(seed)},
        )
        for seed in seeds
        for layout in layouts
        if (layout, seed) not in known
    ]
    train_rows(path, ("layout", "seed", *FIGURES), trainings, workers=workers, stop=stop)
    return path
