"""A training step on one device: each path of attention, compiled and not.

The paper's base size: d_model 512, 32 slots (attention and dense in turn), segment and memory 192,
32 streams. Printed are tokens per second, the part of the device's rate of matrix products (one of
8192 x 8192), counting every product of the formula and also masked keys, and the peak of memory.

    python -m benchmarks.device_step --device cuda --json found.json
    python -m benchmarks.device_step --device cpu --precision float32 --shape small
"""

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.shapes import SIZES, Shape
from pipeline import cli

STEPS_OF_PEAK = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--device", default="cuda", help="cpu or cuda")
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="bfloat16")
    parser.add_argument("--shape", choices=SIZES, default="paper")
    parser.add_argument("--batch", type=int, help="streams (default: those of the shape)")
    parser.add_argument("--paths", nargs="+", help="paths of attention (default: all)")
    parser.add_argument("--compiled", choices=("no", "yes", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=5, help="steps behind one figure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    with cli.user_errors():
        from benchmarks.cpu_counters import most_others
        from benchmarks.harness import Side, in_turn, write_result
        from benchmarks.sides import matmul_gflops
        from pipeline.devices import device_of

        device_of(arguments.device)
    device, precision, shape = arguments.device, arguments.precision, SIZES[arguments.shape]
    shape = replace(shape, batch=arguments.batch or shape.batch)
    made = {
        name: (shape, device, precision, path, compiled)
        for name, path, compiled in choices(arguments.paths, arguments.compiled)
    }
    sides = {name: Side(step_on, given) for name, given in made.items()}
    how = {"rounds": arguments.rounds, "calls": arguments.calls}
    timings = in_turn(sides, **how, most_others=most_others(device))
    rows: dict[str, Any] = {name: timings.row(name) for name in sides}
    size = 8192 if device.startswith("cuda") else 2048
    peak_gflops = matmul_gflops(size, size, size, device, precision)
    for name, row in rows.items():
        row |= figures(shape, row["median_ms"], peak_gflops)
        row["peak_mb"] = peak_of(step_on, made[name])
        print(
            f"{name:20s} {row['median_ms']:9.1f} ms [{row['low_ms']:.1f}-{row['high_ms']:.1f}]  "
            f"{row['tokens_per_s']:9.0f} tokens/s  {row['share_of_matmul']:4.0%} of matmul  "
            f"{row['peak_mb']:8.0f} MB"
        )
    print(f"matmul {peak_gflops:.0f} GFLOP/s")
    content = {"device": device, "precision": precision, "shape": asdict(shape)}
    content |= {"sides": rows, "matmul_gflops": peak_gflops}
    write_result(arguments.json, f"device_step_{arguments.shape}_{device}_{precision}", content)
    return 0


def choices(paths: Sequence[str] | None, compiled: str) -> list[tuple[str, str, bool]]:
    """Name, path and whether it is compiled, of each side."""
    from model.attention_kernels import KERNELS

    ways = {"no": (False,), "yes": (True,), "both": (False, True)}[compiled]
    found = []
    for path in paths or KERNELS:
        # While slots are compiled, the others give way to `with_bias`.
        for way in ways if path == "with_bias" else (False,):
            found.append((f"{path}, compiled" if way else path, path, way))
    return found


def step_on(
    shape: Shape, device: str, precision: str, path: str, compiled: bool
) -> Callable[[], object]:
    """A training step on a device."""
    import torch

    from benchmarks.sides import model_step, our_model
    from model.slot import run
    from pipeline.devices import set_precision
    from training.runtime import compiled_run

    torch.manual_seed(0)
    there = torch.device(device)
    set_precision(precision, there)
    run_slot = compiled_run(there) if compiled else run
    model = our_model(shape)
    return model_step(model, shape, precision, there, attention=path, run_slot=run_slot)


def figures(shape: Shape, step_ms: float, peak_gflops: float) -> dict[str, float]:
    """Tokens per second and the part of the rate of matrix products."""
    from benchmarks.sides import arithmetic

    speed = 1e3 * shape.batch * shape.segment / step_ms
    share = speed * arithmetic(shape)["ours"] / 1e9 / peak_gflops
    return {"tokens_per_s": speed, "share_of_matmul": share}


def peak_of(make: Callable[..., Callable[[], object]], given: tuple[Any, ...]) -> float:
    """Peak MB of some steps in a process of their own; without a GPU's all that is resident."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak_mb, (make, given))


def _peak_mb(make: Callable[..., Callable[[], object]], given: tuple[Any, ...]) -> float:
    import resource

    import torch

    step = make(*given)
    for _ in range(STEPS_OF_PEAK):
        step()
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
