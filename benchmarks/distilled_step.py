"""How much longer a training step takes that learns from a teacher, and what memory it needs.

The teacher has twice the blocks of the student, or as many (`same`). All steps train on the same
random text with the frequencies of words, in turn, each in its own process.

    python -m benchmarks.distilled_step --shape small
    python -m benchmarks.distilled_step --shape large --rounds 5
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.device_step import peak_of
from benchmarks.shapes import SHAPES, SIZES, Shape
from pipeline import cli

# Blocks of the teacher over the student's, and the temperature.
SIDES: dict[str, tuple[int, float]] = {
    "plain": (0, 1.0),
    "same": (1, 1.0),
    "double": (2, 1.0),
    "double, temperature 2": (2, 2.0),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=5, help="steps behind one figure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import Side, in_turn, write_result

    shape = SIZES[arguments.shape]
    sides = {name: Side(distilled_step, (shape, *given)) for name, given in SIDES.items()}
    timings = in_turn(sides, rounds=arguments.rounds, calls=arguments.calls)
    rows: dict[str, Any] = {name: timings.row(name) for name in sides}
    for name, row in rows.items():
        row["over_plain"] = timings.ratio(name, "plain")
        row["peak_mb"] = peak_of(distilled_step, (shape, *SIDES[name]))
        print(
            f"{name:23s} {row['median_ms']:8.1f} ms [{row['low_ms']:.1f}-{row['high_ms']:.1f}]  "
            f"{row['over_plain']:5.2f}x of plain  {row['peak_mb']:6.0f} MB"
        )
    found = {"shape": asdict(shape), "sides": rows}
    write_result(arguments.json, f"distilled_step_{arguments.shape}", found)
    return 0


def distilled_step(shape: Shape, times: int, temperature: float) -> Callable[[], object]:
    """A step with a teacher of so many times the blocks; 0: without one."""
    import torch

    from benchmarks.sides import our_model, train_state, weight_step, zipf_batches
    from model.distillation import Teacher

    torch.manual_seed(0)
    cpu, batches = torch.device("cpu"), zipf_batches(shape)
    step, state = weight_step("float32", cpu), train_state(our_model(shape), shape, cpu)
    if times:
        model = our_model(replace(shape, slots=times * shape.slots))
        step = replace(step, teacher=Teacher(model, 0.9, temperature))
        assert step.teacher is not None
        state.streams["teacher"] = step.teacher.initial_state(shape.batch)

    def take() -> None:
        step(state, batches.batch(state.step))
        state.step += 1

    return take


if __name__ == "__main__":
    sys.exit(main())
