"""Whether targets of latency are hit, by a budget alone and by a search that heeds the cost.

One search without a target and one for each target. From both, `argmax` within the target as
budget, from the second also with `derive.fill: d_ffn`; then the derived model and the reference are
measured again, whole and in turn, by nothing that the derivation measured. A target is hit where
the derived model takes 0.85 to 1.03 of it. Searches are resumed, so what is missing is done.

    python -m benchmarks.cost_targets benchmarks/six_blocks.yaml --run runs/targets --json FILE
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model import layout_letters
from nas.costs.config import BudgetConfig
from nas.derivation import reference_layout
from pipeline import cli
from pipeline.costs import cost_model
from pipeline.derive import derivation
from pipeline.experiment import load_experiment
from pipeline.plan import RunPlan, set_up
from pipeline.search import finish_searches, run_searches
from report.curves import COST_PATH, COSTS
from training.run_dir import commit, machine
from utils.files import read_object, write_whole

TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9)
LEAST, MOST = 0.85, 1.03
# A search draws nothing and validates once: times are looked at.
QUIET = ("run.figures=false", "run.validate_every=100000")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--run", type=Path, required=True, help="a folder for the searches")
    parser.add_argument("--json", type=Path, help="write the figures there (default: nowhere)")
    arguments = parser.parse_args(argv)
    free = searched(arguments.experiment, arguments.run / "free", [])
    rows = [target_row(arguments.experiment, arguments.run, free, target) for target in TARGETS]
    for row in rows:
        print(json.dumps(row))
    for way in ("budget", "search", "filled"):
        hits = sum(LEAST <= row[way]["of_target"] <= MOST for row in rows)
        print(f"{way}: {hits} of {len(rows)} targets hit")
    if arguments.json is not None:
        content = {"commit": commit(), "machine": machine(free.device), "targets": rows}
        write_whole(arguments.json, json.dumps(content, indent=1) + "\n")
    return 0


def searched(experiment: Path, folder: Path, settings: Sequence[str]) -> RunPlan:
    """A finished search with these settings."""
    plan = set_up(load_experiment(experiment, [*QUIET, *settings]), folder)
    run_searches(plan, [plan.seed])
    finish_searches(plan, [plan.seed])
    return plan


def target_row(experiment: Path, folder: Path, free: RunPlan, target: float) -> dict[str, Any]:
    """What both ways made of a target: layouts, and their latency over the reference's."""
    settings = [f"search.cost.target={target}x"]
    heeding = searched(experiment, folder / f"target-{target}", settings)
    search_folder = heeding.search_folder(heeding.seed)
    reference_ms = read_object(search_folder / COSTS)["reference_cost"]
    with (search_folder / COST_PATH).open(encoding="utf-8", newline="") as file:
        *_, last = csv.DictReader(file)
    return {
        "target": target,
        "budget": _derived(free, target),
        "search": _derived(heeding, target)
        | {name: float(last[name]) / reference_ms for name in ("expected", "argmax")},
        "filled": _derived(heeding, target, fill="d_ffn"),
    }


def _derived(plan: RunPlan, target: float, fill: str | None = None) -> dict[str, Any]:
    changed: dict[str, Any] = {"method": "argmax", "budget": BudgetConfig(latency=f"{target}x")}
    changed |= {"fill": fill, "gap": False}
    config = plan.experiment.derive.model_copy(update=changed)
    layout = tuple(derivation(plan, config).architecture.blocks)
    reference = reference_layout(plan.request(config, []))
    times_ms = cost_model(plan).times_ms("latency", {"one": layout, "reference": reference})
    share = times_ms["one"] / times_ms["reference"]
    return {"layout": layout_letters(layout), "measured": share, "of_target": share / target}


if __name__ == "__main__":
    sys.exit(main())
