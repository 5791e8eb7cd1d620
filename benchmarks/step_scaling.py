"""How a training step's time grows with the slots and with the length of the memory.

Slots: the small sizes, attention and dense slots in turn; a straight line through the medians and
its R2. Memory: with M rows of memory the step should take t(R) * F(M) / F(R), where R is the
shape's own memory and F the FLOPs per token that derive.py and compare.py print (the blocks'
`flops`, embedding and softmax; a backward pass is twice its forward pass, so the ratio is that of
both). What F leaves out (softmax, norms, dropout, optimiser) is the claim's to answer for: nothing
is fitted. Printed is how much longer than this the step took, in percent.

    python -m benchmarks.step_scaling slots
    python -m benchmarks.step_scaling memory --shape large
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.shapes import SIZES, Shape
from pipeline import cli

if TYPE_CHECKING:
    from benchmarks.harness import Timings

SLOTS = (4, 8, 12, 16, 24, 32)
MEMORIES = {"small": (0, 16, 32, 64, 128, 256), "large": (0, 64, 128, 256, 512)}
# What the claims allow.
LEAST_R2, MOST_PERCENT = 0.98, 25.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("against", choices=("slots", "memory"))
    parser.add_argument("--shape", choices=SIZES, default="small")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=5, help="steps behind one figure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import Side, in_turn, write_result
    from benchmarks.sides import our_step

    shape = SIZES[arguments.shape]
    counts = SLOTS if arguments.against == "slots" else MEMORIES[arguments.shape]
    shapes = {str(count): _sized(shape, arguments.against, count) for count in counts}
    sides = {name: Side(our_step, (each,)) for name, each in shapes.items()}
    timings = in_turn(sides, rounds=arguments.rounds, calls=arguments.calls)
    if arguments.against == "slots":
        found = against_slots(timings)
    else:
        found = against_memory(shapes, timings, str(shape.memory))
    claim = f"step_scaling_{arguments.against}_{arguments.shape}"
    write_result(arguments.json, claim, {"shape": asdict(shape), **found})
    return 0


def _sized(shape: Shape, against: str, count: int) -> Shape:
    return replace(shape, slots=count) if against == "slots" else replace(shape, memory=count)


def against_slots(timings: "Timings") -> dict[str, Any]:
    """The medians and the line through them."""
    from scipy.stats import linregress

    rows = {name: timings.row(name) for name in timings.seconds}
    line = linregress([int(name) for name in rows], [row["median_ms"] for row in rows.values()])
    found = {"at_zero": line.intercept, "slope": line.slope, "r2": line.rvalue**2}
    for name, row in rows.items():
        on_line = line.intercept + line.slope * int(name)
        print(f"{name:>3s} slots {row['median_ms']:7.1f} ms, on the line {on_line:7.1f} ms")
    print(
        f"{found['at_zero']:.1f} ms + {found['slope']:.2f} ms a slot, R2 {found['r2']:.4f} "
        f"(claimed: {LEAST_R2})"
    )
    return {"sides": rows, "line_ms": found}


def against_memory(shapes: Mapping[str, Shape], timings: "Timings", own: str) -> dict[str, Any]:
    """Time and FLOPs beside those of the memory that the shape itself has."""
    from benchmarks.sides import arithmetic

    flops = {name: arithmetic(shape)["ours"] for name, shape in shapes.items()}
    rows = {}
    for name in shapes:
        ratios = (timings.ratio(name, own), flops[name] / flops[own])
        excess = 100 * (ratios[0] / ratios[1] - 1)
        row = dict(zip(("time_ratio", "flops_ratio"), ratios, strict=True))
        rows[name] = timings.row(name) | row | {"excess_percent": excess}
        print(
            f"memory {name:>3s} {rows[name]['median_ms']:7.1f} ms, time x {ratios[0]:.2f}, "
            f"FLOPs x {ratios[1]:.2f}: {excess:+.0f}%"
        )
    worst = max(abs(row["excess_percent"]) for row in rows.values())
    print(f"worst {worst:.0f}% (claimed: {MOST_PERCENT:.0f}%)")
    return {"own_memory": int(own), "memories": rows, "worst_percent": worst}


if __name__ == "__main__":
    sys.exit(main())
