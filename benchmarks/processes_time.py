"""What processes bring: tokens/s of 1 and 2 processes of one thread, and of 1 process of two.

All take the retraining's step on the same global batch; the processes of torchrun share its streams
out and add their gradients up over gloo. A round starts each side anew, warms it up and times some
steps; each round begins with another side. Start-up is not timed.

    python -m benchmarks.processes_time --shape small
    python -m benchmarks.processes_time --shape large --steps 10
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.shapes import SIZES, Shape
from pipeline import cli

WARM_STEPS = 5
TIMED = "seconds per step: "


@dataclass(frozen=True)
class Started:
    """How a side is started."""

    processes: int
    threads: int


SIDES = {
    "1 process, 1 thread": Started(1, 1),
    "2 processes, 1 thread each": Started(2, 1),
    "1 process, 2 threads": Started(1, 2),
}
BASE = "1 process, 2 threads"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--shape", choices=SIZES, default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="timed steps of a round")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--worker", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        work(SIZES[arguments.shape], arguments.worker, arguments.steps)
        return 0
    from benchmarks.harness import write_result

    shape = SIZES[arguments.shape]
    rounds = rounds_of(arguments.shape, arguments.steps, arguments.rounds)
    rows = compared(rounds, shape.batch * shape.segment)
    for name, row in rows.items():
        print(
            f"{name:27s} {row['median_ms']:8.1f} ms [{row['low_ms']:.1f}-{row['high_ms']:.1f}]  "
            f"{row['tokens_per_s']:7.0f} tokens/s, {row['speed']:.2f} of {BASE}"
        )
    found = {"shape": asdict(shape), "sides": rows}
    write_result(arguments.json, f"processes_time_{arguments.shape}", found)
    return 0


def compared(rounds: Sequence[Mapping[str, float]], tokens: int) -> dict[str, dict[str, Any]]:
    """Medians over the rounds, and the median of the rounds' speeds beside the base's.

    Args:
        rounds: seconds of a step, by side.
        tokens: of a step.
    """
    rows = {}
    for name in SIDES:
        ms = [1e3 * each[name] for each in rounds]
        median = statistics.median(ms)
        rows[name] = {
            "median_ms": median,
            "low_ms": min(ms),
            "high_ms": max(ms),
            "rounds_ms": ms,
            "tokens_per_s": 1e3 * tokens / median,
            "speed": statistics.median(each[BASE] / each[name] for each in rounds),
        }
    return rows


def rounds_of(shape: str, steps: int, wanted: int) -> list[dict[str, float]]:
    """So many rounds in which nobody else used the machine."""
    from benchmarks.harness import quiet_rounds, rotated

    def take(turn: int) -> tuple[dict[str, float], float]:
        began_s, sides = _children_s(), rotated(SIDES, turn)
        taken = {name: seconds(shape, steps, started) for name, started in sides.items()}
        return taken, _children_s() - began_s

    return quiet_rounds(take, wanted)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(shape: str, steps: int, started: Started) -> float:
    """Seconds of a step of a side that is started now."""
    command = [sys.executable, "-m"]
    if started.processes > 1:
        command += ["torch.distributed.run", "--standalone"]
        command += ["--nproc_per_node", str(started.processes), "-m", "--"]
    command += ["benchmarks.processes_time", "--shape", shape, "--steps", str(steps)]
    done = subprocess.run(
        [*command, "--worker", str(started.threads)],
        env={**os.environ, "OMP_NUM_THREADS": str(started.threads)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(TIMED))
    return float(line.removeprefix(TIMED))


def work(shape: Shape, threads: int, steps: int) -> None:
    """Take steps as one of the processes; the first says how long one takes."""
    import torch

    from benchmarks.sides import model_step, our_model
    from training.distributed import join
    from training.runtime import keep_freed_memory

    torch.set_num_threads(threads)
    keep_freed_memory()
    ranks = join()
    torch.manual_seed(0)
    model = our_model(shape)
    ranks.seed(0)
    step = model_step(model, shape, ranks=ranks)
    for _ in range(WARM_STEPS):
        step()
    ranks.wait()
    began_s = time.perf_counter()
    for _ in range(steps):
        step()
    ranks.wait()
    if ranks.is_first:
        print(f"{TIMED}{(time.perf_counter() - began_s) / steps}", flush=True)
    ranks.wait()
    # As the product ends one of several processes.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
