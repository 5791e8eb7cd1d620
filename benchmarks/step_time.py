"""How fast a training step is: ours, a textbook Transformer-XL, and the practical ceiling.

All sides train on the same random text with the frequencies of words (Zipf) at the same sizes, in
turn, each in its own process. The textbook runs with the allocator as it comes and once more with
our settings of it, so that its part in the ratio is seen. Ours runs with rotary positions and with
none too. The ceiling has neither memory nor positions: the share of the arithmetic that it does is
printed beside it.

    python -m benchmarks.step_time --shape small
    python -m benchmarks.step_time --shape large --rounds 5
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.shapes import SHAPES, SIZES
from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=10, help="steps behind one figure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import in_turn, write_result
    from benchmarks.sides import OTHERS, OUR_ALLOCATOR, arithmetic, matmul_gflops, step_sides

    shape = SIZES[arguments.shape]
    sides = step_sides(shape)
    timings = in_turn(sides, rounds=arguments.rounds, calls=arguments.calls)
    flops = arithmetic(shape)
    peak = matmul_gflops(shape.batch * shape.segment, shape.d_model, shape.d_ffn)
    tokens = shape.batch * shape.segment
    rows = {}
    for name in sides:
        row = timings.row(name)
        second = row["median_ms"] / 1e3
        share = flops[name] * tokens / second / 1e9 / peak
        rows[name] = row | {"tokens_per_s": tokens / second, "share_of_matmul": share}
        print(
            f"{name:23s} {row['median_ms']:8.1f} ms [{row['low_ms']:.1f}-{row['high_ms']:.1f}]  "
            f"{tokens / second:8.0f} tokens/s  {flops[name] / 1e6:6.2f} MFLOP/token  "
            f"{share:4.0%} of matmul"
        )
    speed = {
        "ours_over_textbook": timings.ratio("textbook", "ours"),
        "ours_over_textbook_with_our_allocator": timings.ratio(OUR_ALLOCATOR, "ours"),
        "ours_over_ceiling": timings.ratio("ceiling", "ours"),
        **{f"{name}_over_relative": timings.ratio("ours", f"ours, {name}") for name in OTHERS},
        "ceilings_share_of_arithmetic": flops["ceiling"] / flops["ours"],
    }
    print("  ".join(f"{name} {value:.2f}" for name, value in speed.items()))
    print(f"matmul {peak:.0f} GFLOP/s")
    found = {"shape": asdict(shape), "sides": rows, "speed": speed, "matmul_gflops": peak}
    write_result(arguments.json, f"step_time_{arguments.shape}", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
