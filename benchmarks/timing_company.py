"""Whether the ratio of two latencies depends on what else is timed in the same turns.

A layout of many kinds and `interleaved` are timed among layouts of many kinds, and among layouts of
attention and dense blocks. Each turn of a model is two passes: the first behind another model's,
the second behind its own, which is the one that `nas.costs.latency` takes of short passes. So both
ways of timing come from the same turns.

    python -m benchmarks.timing_company --json benchmarks/results/timing_company.json
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli

if TYPE_CHECKING:
    from pipeline.plan import RunPlan

EXPERIMENT = Path("configs/all_blocks.yaml")
ONE, OTHER = "g c k d g c d d", "a d a d a d a d"
COMPANIES = {
    "many kinds": ("c d k d g c d d", "k g c d d c g d", "g c d d k d c d"),
    "attention and dense": ("a d a d d d d d", "a a a a d d d d", "a d d d d d d d"),
}
BEHIND = ("another model", "itself")
Pass = Callable[[], object]
# By what a pass came behind, the ratio of each block of rounds.
Ratios = dict[str, list[float]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--blocks", type=int, default=8, help="of rounds, a company after another")
    parser.add_argument("--rounds", type=int, default=40, help="of each company in a block")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import write_result
    from pipeline.experiment import load_experiment
    from pipeline.plan import set_up

    plan = set_up(load_experiment(EXPERIMENT, []), Path("runs/timing_company"))
    passes = {company: passes_of(plan, (ONE, OTHER, *COMPANIES[company])) for company in COMPANIES}
    ratios: dict[str, Ratios] = {name: {behind: [] for behind in BEHIND} for name in COMPANIES}
    for _ in range(arguments.blocks):
        for company, timed in passes.items():
            for behind, ratio in ratios_of(timed, arguments.rounds).items():
                ratios[company][behind].append(ratio)
    for behind in BEHIND:
        print(line(behind, {company: ratios[company][behind] for company in COMPANIES}))
    write_result(arguments.json, "timing_company", {"ratios": ratios})
    return 0


def passes_of(plan: "RunPlan", layouts: Sequence[str]) -> dict[str, Pass]:
    """A pass over a segment with a full memory for each layout."""
    from model import parse_layout
    from nas.costs.latency import prefill
    from pipeline.costs import cost_model

    measured = cost_model(plan)
    return {
        layout: prefill(measured.build(parse_layout(layout, plan.candidates)), measured.shapes)
        for layout in layouts
    }


def ratios_of(
    passes: Mapping[str, Pass], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """How many times longer `OTHER` takes than `ONE`, by what each pass came behind."""
    times_s: dict[str, dict[str, list[float]]] = {
        name: {behind: [] for behind in BEHIND} for name in passes
    }
    for _ in range(rounds):
        for name, run in passes.items():
            for behind in BEHIND:
                began_s = clock()
                run()
                times_s[name][behind].append(clock() - began_s)
    return {
        behind: statistics.median(times_s[OTHER][behind]) / statistics.median(times_s[ONE][behind])
        for behind in BEHIND
    }


def line(behind: str, by_company: Mapping[str, Sequence[float]]) -> str:
    """The median ratio of each company with its range over blocks, and how far they are apart."""
    medians = [statistics.median(ratios) for ratios in by_company.values()]
    shown = ", ".join(
        f"among {company} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        for company, ratios in by_company.items()
    )
    return f"behind {behind}: {shown}; apart by {max(medians) / min(medians) - 1:.1%}"


if __name__ == "__main__":
    sys.exit(main())
