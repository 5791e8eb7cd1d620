"""What layouts derived under budgets are worth on LayoutBench, beside rules and random ones.

For each budget, the FLOPs of a layout with 1 to 5 attention slots, the regret of what is derived
from each of several finished searches: how far its test nats lie above those of the best layout
within the budget. Rules count where they keep the budget. One training of a random layout within
it, and the best of three on validation (which cost what a search and its layout's training cost),
are the baselines. Intervals are 95% over the searches.

    python -m benchmarks.layoutbench search configs/layoutbench.yaml --workers 2
    python -m benchmarks.budget_regret runs/layoutbench-search --json FILE
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.layoutbench.making import checked_table
from benchmarks.layoutbench.regret import random_search, regret_of
from benchmarks.layoutbench.table import LayoutTable
from nas.costs.config import BudgetConfig
from nas.statistics.intervals import paired_interval
from pipeline import cli
from pipeline.derive import derivation
from pipeline.experiment import load_experiment
from pipeline.plan import RunPlan, set_up
from training.run_dir import commit

TABLE = Path("benchmarks/results/layoutbench.csv")
METHODS = ("argmax", "top_k")
TRAININGS, REPLAYS = 3, 2000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("run", type=Path, help="the folder of layoutbench search")
    parser.add_argument("--table", type=Path, default=TABLE, help="what layouts are worth")
    parser.add_argument("--json", type=Path, help="write the figures there (default: nowhere)")
    arguments = parser.parse_args(argv)
    folders = sorted(arguments.run.glob("seed-*"), key=lambda path: int(path.name[5:]))
    plans = [_plan(folder) for folder in folders]
    table = checked_table(arguments.table, plans[0].experiment, plans[0].inputs())
    rows = [budget_row(plans, table, attentions) for attentions in range(1, 6)]
    for row in rows:
        print("\n".join(_lines(row)))
    if arguments.json is not None:
        content = {"seeds": [plan.seed for plan in plans], "commit": commit(), "budgets": rows}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def _plan(folder: Path) -> RunPlan:
    (saved,) = folder.glob("search/seed-*/experiment.yaml")
    return set_up(load_experiment(saved), folder)


def within(table: LayoutTable, flops: float) -> LayoutTable:
    """The table's layouts that cost at most so much."""
    rows = tuple(row for row in table.rows if row.flops_per_token <= flops * (1 + 1e-9))
    return LayoutTable(rows, table.tie_blocks)


def budget_row(plans: Sequence[RunPlan], table: LayoutTable, attentions: int) -> dict[str, Any]:
    """Regrets under the FLOPs of a layout with so many attention slots."""
    plan, slots = plans[0], len(plans[0].slots)
    kinds = {candidate.kind: candidate for candidate in plan.candidates}
    most = (kinds["attention"],) * attentions + (kinds["dense"],) * (slots - attentions)
    flops = plan.costs(most)
    inside = within(table, flops)
    nats = inside.mean_nats("test")
    row: dict[str, Any] = {
        "attentions": attentions,
        "flops_per_token": flops,
        "layouts": len(nats),
        "best": min(nats, key=nats.__getitem__),
    }
    for method in METHODS:
        layouts = [_derived(one, method, flops) for one in plans]
        row[method] = _regrets(inside, layouts)
    row["rules"] = dict(_rules(plan, inside))
    row["random"] = sum(nats.values()) / len(nats) - min(nats.values())
    trainings = min(TRAININGS, len(nats))
    row["random_search"] = random_search(inside, trainings, replays=REPLAYS, seed=0).mean
    return row


def _regrets(table: LayoutTable, layouts: Sequence[str]) -> dict[str, Any]:
    each = list(regret_of(table, layouts).each)
    mean, half = paired_interval(each)
    return {"layouts": list(layouts), "mean": mean, "half_width": half, "each": each}


def _derived(plan: RunPlan, method: str, flops: float) -> str:
    changed = {"method": method, "budget": BudgetConfig(flops=flops), "gap": False}
    config = plan.experiment.derive.model_copy(update=changed)
    return derivation(plan, config).architecture.letters().replace(" ", "")


def _rules(plan: RunPlan, inside: LayoutTable) -> list[tuple[str, dict[str, Any]]]:
    """The rules that keep the budget, and attention first with each number of slots that does."""
    layouts = {}
    for name in ("interleaved", "par", "sandwich"):
        config = plan.experiment.derive.model_copy(update={"method": name, "gap": False})
        layouts[name] = derivation(plan, config).architecture.letters().replace(" ", "")
    slots = len(plan.slots)
    first = ["a" * count + "d" * (slots - count) for count in range(slots + 1)]
    serving = [layout for layout in first if inside.layout_of(layout) is not None]
    layouts["attention first"] = serving[-1]
    return [
        (name, {"layout": layout, "regret": regret_of(inside, [layout]).mean})
        for name, layout in layouts.items()
        if inside.layout_of(layout) is not None
    ]


def _lines(row: Mapping[str, Any]) -> list[str]:
    head = (
        f"at most {row['attentions']} attentions ({row['flops_per_token']:,.0f} FLOPs per token): "
        f"{row['layouts']} layouts, best {row['best']}"
    )
    lines = [head]
    for method in METHODS:
        part = row[method]
        shown = f"{part['mean']:.4f} +- {part['half_width']:.4f}"
        lines.append(f"  {method}: {shown}  {' '.join(part['layouts'])}")
    lines += [
        f"  {name}: {rule['regret']:.4f}  {rule['layout']}" for name, rule in row["rules"].items()
    ]
    lines.append(f"  a random layout: {row['random']:.4f}; best of 3: {row['random_search']:.4f}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
