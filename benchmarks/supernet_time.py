"""What a SuperNet's step costs beside the steps of its candidates, and of the layout it draws.

soft: a step with all candidates beside the sum of what each candidate adds alone, both beyond a
model without slots. single_path: a step beside that of the derived model with the layout it draws,
and at 16 slots beside soft, in time and in peak resident memory beyond the start.

    python -m benchmarks.supernet_time
"""

import argparse
import multiprocessing
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.shapes import LABELS, SIZES, Shape
from pipeline import cli

# Each draws anew, and the greediest draw counts.
PEAK_STEPS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import Side, in_turn, write_result

    six, sixteen = replace(SIZES["small"], slots=6), replace(SIZES["small"], slots=16)
    drawn = ("attention", "dense", "identity", "attention", "dense", "dense")
    sides = {
        "none": Side(derived_step, (six, ())),
        "soft": Side(search_step, (six, "soft", ())),
        **{label: Side(derived_step, (six, (label,) * 6)) for label in LABELS},
        "single_path": Side(search_step, (six, "single_path", drawn)),
        "drawn": Side(derived_step, (six, drawn)),
        "soft 16": Side(search_step, (sixteen, "soft", ())),
        "single_path 16": Side(search_step, (sixteen, "single_path", ())),
    }
    timings = in_turn(sides, rounds=arguments.rounds, calls=arguments.calls)
    rows = {name: timings.row(name) for name in sides}
    for name, row in rows.items():
        print(f"{name:15s} {row['median_ms']:7.1f} ms [{row['low_ms']:.1f}-{row['high_ms']:.1f}]")
    ms = {name: row["median_ms"] for name, row in rows.items()}
    peaks = {name: peak_mb(sixteen, name) for name in ("soft", "single_path")}
    found = {
        "soft_over_candidates": (ms["soft"] - ms["none"])
        / sum(ms[label] - ms["none"] for label in LABELS),
        "single_path_over_drawn": timings.ratio("single_path", "drawn"),
        "single_path_over_soft_at_16": timings.ratio("single_path 16", "soft 16"),
        "memory_of_single_path_over_soft_at_16": peaks["single_path"] / peaks["soft"],
    }
    for name, value in found.items():
        print(f"{name} {value:.2f}")
    write_result(
        arguments.json, "supernet_time", {"sides": rows, "ratios": found, "peak_mb": peaks}
    )
    return 0


def derived_step(shape: Shape, layout: tuple[str, ...]) -> Callable[[], object]:
    """A retraining step of a layout."""
    from benchmarks.sides import candidates, language_model, model_step

    held = [(candidates(shape)[label],) for label in layout]
    return model_step(language_model(shape, held), shape)


def search_step(shape: Shape, estimator: str, held: tuple[str, ...]) -> Callable[[], object]:
    """A search step, weights and alpha on the same batch.

    Args:
        shape: sizes.
        estimator: of both.
        held: the draw of each slot in every step; empty: a fresh draw in each step.
    """
    from benchmarks.sides import candidates, language_model, supernet_step

    model = language_model(shape, [tuple(candidates(shape).values())] * shape.slots)
    return supernet_step(model, shape, estimator, [LABELS.index(label) for label in held])


def peak_mb(shape: Shape, estimator: str) -> float:
    """Peak resident memory of some steps beyond what a process has that can take them."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_peak_mb, (shape, estimator))


def _peak_mb(shape: Shape, estimator: str) -> float:
    from training.runtime import keep_freed_memory

    keep_freed_memory()
    search_step(replace(shape, slots=1, d_model=16, d_ffn=16), estimator, ())()
    start = _resident_mb()
    step = search_step(shape, estimator, ())
    for _ in range(PEAK_STEPS):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - start


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    sys.exit(main())
