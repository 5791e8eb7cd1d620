"""Measure what a cluster of the adaptive softmax costs on this machine.

Times the forward and backward pass of one tail for many sizes, as the model computes it, and fits
the cost of benchmarks/optimal_cutoffs.py by least squares of the relative errors. Prints them.

    python -m benchmarks.softmax_constants --threads 1
"""

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline import cli

ROWS = (1, 8, 32, 128, 512, 1024)
WORDS = (16, 128, 1024, 4096, 16384)
WIDTHS = (8, 32, 128)
D_MODEL, TOKENS = 128, 1024
MOST_LOGITS = 2**23


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args(argv)
    import torch

    torch.set_num_threads(arguments.threads)
    sizes = [s for s in product(ROWS, WORDS, WIDTHS) if s[0] * s[1] <= MOST_LOGITS]
    seconds = [time_tail(*size, arguments.repeats, arguments.device) for size in sizes]
    launch, multiply_add, logit, threshold, error = fit(np.array(sizes), np.array(seconds))
    where = f"{processor()}, {arguments.device}, {arguments.threads} threads"
    print(f"{where}, torch {torch.__version__}, float32, d_model {D_MODEL}, {TOKENS} tokens a step")
    print(f"{len(sizes)} sizes, best of {arguments.repeats}; relative error of the fit {error:.2f}")
    print(
        f"launch_s {launch:.3g}, multiply_add_s {multiply_add:.3g}, logit_s {logit:.3g}, "
        f"threshold {threshold:.3g}"
    )
    return 0


def time_tail(rows: int, words: int, width: int, repeats: int, device: str) -> float:
    """Least seconds of one tail's forward and backward pass, what picks its rows included."""
    import torch
    import torch.nn.functional as F

    h_ND = torch.randn(TOKENS, D_MODEL, device=device, requires_grad=True)
    projection = torch.randn(width, D_MODEL, device=device, requires_grad=True)
    table = torch.randn(words, width, device=device, requires_grad=True)
    target_N = torch.full((TOKENS,), -1, device=device)
    target_N[:rows] = torch.arange(rows, device=device) % words
    found = []
    for _ in range(repeats):
        _wait(device)
        start_s = time.perf_counter()
        row_R = (target_N >= 0).nonzero().flatten()
        logit_RV = F.linear(F.linear(h_ND[row_R], projection), table)
        nll_R = F.cross_entropy(logit_RV, target_N[row_R], reduction="none")
        torch.zeros(TOKENS, device=device).index_add(0, row_R, nll_R).sum().backward()  # type: ignore[no-untyped-call]
        _wait(device)
        found.append(time.perf_counter() - start_s)
    return min(found)


def processor() -> str:
    """The processor's name, as far as the machine tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _wait(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def fit(
    sizes_P3: NDArray[np.int64], seconds_P: NDArray[np.float64]
) -> tuple[float, float, float, float, float]:
    """launch_s, multiply_add_s, logit_s, threshold and the relative error of the fit."""
    rows_P, words_P, width_P = sizes_P3.T.astype(np.float64)
    product_P = rows_P * words_P * width_P
    found = []
    for threshold in (0.0, *np.logspace(3, 7, 41)):
        columns = [
            np.ones(len(seconds_P)),
            np.maximum(threshold, product_P) + rows_P * D_MODEL * width_P,
            rows_P * words_P,
        ]
        relative_P3 = np.stack(columns, -1) / seconds_P[:, None]
        solution, *_ = np.linalg.lstsq(relative_P3, np.ones(len(seconds_P)), rcond=None)
        error = float(np.sqrt(((relative_P3 @ solution - 1) ** 2).mean()))
        if (solution >= 0).all():
            found.append((error, (*map(float, solution), float(threshold))))
    error, (launch, multiply_add, logit, threshold) = min(found)
    return launch, multiply_add, logit, threshold, error


if __name__ == "__main__":
    sys.exit(main())
