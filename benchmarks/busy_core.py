"""Whether ratios of latencies under one busy core are those of a quieter machine.

Layouts are timed in turn, as a budget of latency does it, in alternate blocks: one while a process
of ours keeps a core busy, one while it does not. Blocks of both kinds come from the same models and
minutes, so that what others do on the machine meets both. Blocks whose times are refused, since
they vary too much, are counted and have no ratio.

    python -m benchmarks.busy_core --json benchmarks/results/busy_core.json
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline import cli

EXPERIMENT = Path("benchmarks/six_blocks.yaml")
REFERENCE = "a d a d a d"
LAYOUTS = ("a a a d d d", "d d d d d d", "a d d i i i", "a a a a a a")
STATES = ("quiet", "busy")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--blocks", type=int, default=7, help="of rounds, of each kind")
    parser.add_argument("--rounds", type=int, default=30, help="in a block, at least")
    parser.add_argument("--threads", type=int, default=1, help="of the passes")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import write_result
    from model import parse_layout
    from nas.costs.latency import Unsteady, prefill, time_in_turn
    from pipeline.costs import cost_model
    from pipeline.experiment import load_experiment
    from pipeline.plan import set_up

    threads = f"run.threads={arguments.threads}"
    plan = set_up(load_experiment(EXPERIMENT, [threads]), Path("runs/busy_core"))
    costs = cost_model(plan)
    passes = {
        layout: prefill(costs.build(parse_layout(layout, plan.candidates)), costs.shapes)
        for layout in (REFERENCE, *LAYOUTS)
    }
    ratios: dict[str, dict[str, list[float]]] = {
        state: {layout: [] for layout in LAYOUTS} for state in STATES
    }
    refused = dict.fromkeys(STATES, 0)
    for block in range(2 * arguments.blocks):
        state = STATES[block % 2]
        with one_busy_core(state == "busy"):
            try:
                times = time_in_turn(passes, rounds=arguments.rounds, device=plan.device)
            except Unsteady:
                refused[state] += 1
                continue
        median = {name: statistics.median(ms_N.tolist()) for name, ms_N in times.items()}
        for layout in LAYOUTS:
            ratios[state][layout].append(median[layout] / median[REFERENCE])
    print(f"blocks refused of {arguments.blocks} each: {refused}")
    for layout in LAYOUTS if all(ratios[state][LAYOUTS[0]] for state in STATES) else ():
        quiet, busy = (statistics.median(ratios[state][layout]) for state in STATES)
        print(f"{layout}  quiet {quiet:.3f}x  busy {busy:.3f}x  apart {busy / quiet - 1:+.1%}")
    write_result(arguments.json, "busy_core", {"ratios": ratios, "refused": refused})
    return 0


@contextmanager
def one_busy_core(busy: bool) -> Iterator[None]:
    """A process that does nothing else than compute, where it is asked for."""
    if not busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    sys.exit(main())
