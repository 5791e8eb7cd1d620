"""Whether a training step on this CPU keeps the bound of benchmarks.plan, within twice of it.

python -m benchmarks.plan_bound --json found.json
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.shapes import SHAPES, SIZES
from pipeline import cli

MOST = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 1 where a bound is broken, or too low."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10, help="steps behind one figure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.counting import META, counted_step
    from benchmarks.harness import Side, in_turn, write_result
    from benchmarks.plan import measured_cpu, seconds
    from benchmarks.sides import ADAM, our_model, our_step, zipf_batches
    from training.step import Forward

    sides = {name: Side(our_step, (SIZES[name],)) for name in SHAPES}
    timings = in_turn(sides, rounds=arguments.rounds, calls=arguments.calls)
    card, found, kept = measured_cpu("float32"), {}, True
    for name in SHAPES:
        shape = SIZES[name]
        ids_BT = zipf_batches(shape).batch(0).input_BT
        forward = Forward(META, "float32")
        work = counted_step(partial(our_model, shape), ids_BT, forward, ADAM)
        bound_s, parts = seconds(work, card)
        row = timings.row(name)
        times = row["low_ms"] / 1e3 / bound_s
        kept = kept and 1.0 <= times <= MOST
        alone = {part: 1e3 * second for part, second in parts.items()}
        found[name] = row | {"bound_ms": 1e3 * bound_s, "times": times, "parts_ms": alone}
        each = ", ".join(f"{part} {ms:.1f}" for part, ms in alone.items())
        print(f"{name}: {row['low_ms']:.1f} ms, bound {1e3 * bound_s:.1f} ({each}): {times:.2f}")
    write_result(arguments.json, "plan_bound", {"card": vars(card), "shapes": found})
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
