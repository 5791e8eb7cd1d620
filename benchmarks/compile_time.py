"""What torch.compile of the slots does to a training step: in turn with the step as it is.

Also how long the first steps take, in which torch compiles; its cache on disk is cleared by
`TORCHINDUCTOR_FORCE_DISABLE_CACHES=1`.

    TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 python -m benchmarks.compile_time --shape small
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.device_step import step_on
from benchmarks.step_time import SIZES, Shape
from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--shape", choices=SIZES, default="small")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=10, help="steps behind one figure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import Side, in_turn, write_result

    shape = SIZES[arguments.shape]
    given = {
        "as it is": (shape, "cpu", "float32", "fused", False),
        "with_bias": (shape, "cpu", "float32", "with_bias", False),
        "compiled": (shape, "cpu", "float32", "with_bias", True),
    }
    sides = {name: Side(step_on, those) for name, those in given.items()}
    timings = in_turn(sides, rounds=arguments.rounds, calls=arguments.calls)
    rows = {name: timings.row(name) for name in sides}
    for name, row in rows.items():
        print(f"{name:10s} {row['median_ms']:8.1f} ms [{row['low_ms']:.1f}-{row['high_ms']:.1f}]")
    ratio, first_s = timings.ratio("compiled", "as it is"), first_steps_s(shape)
    print(f"compiled over as it is {ratio:.2f}; the first steps took {first_s:.0f} s")
    content = {"shape": asdict(shape), "sides": rows, "ratio": ratio, "first_steps_s": first_s}
    write_result(arguments.json, f"compile_time_{arguments.shape}", content)
    return 0


def first_steps_s(shape: Shape) -> float:
    """Seconds until the memory is full and every graph is there."""
    step = step_on(shape, "cpu", "float32", "with_bias", compiled=True)
    began_s = time.perf_counter()
    for _ in range(2 + -(-shape.memory // shape.segment)):
        step()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    sys.exit(main())
