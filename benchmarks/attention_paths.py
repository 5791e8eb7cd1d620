"""Each exact kernel of relative attention, forward and backward, at three sizes on one device.

Timed is what lies between the projections: the projected distances, the scores, the attended
values, and the gradients of queries, keys, values, W_r, u and v. All memory is valid and nothing is
dropped. What is found decides the table FASTEST in model/attention_kernels.py.

    python -m benchmarks.attention_paths
    python -m benchmarks.attention_paths --device cuda --dtype bfloat16 --json found.json
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.shapes import SIZES, Shape
from pipeline import cli

DTYPES = ("float32", "bfloat16")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--shapes", choices=SIZES, nargs="+", default=[*SIZES])
    parser.add_argument("--batch", type=int, help="streams (default: those of the shape)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=5, help="calls behind one figure")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.cpu_counters import most_others
    from benchmarks.harness import Side, in_turn, write_result
    from model.attention_kernels import KERNELS

    device, dtype = arguments.device, arguments.dtype
    rows = []
    for name in arguments.shapes:
        shape = SIZES[name]
        shape = replace(shape, batch=arguments.batch or shape.batch)
        paths = [*KERNELS]
        sides = {path: Side(path_step, (shape, path, device, dtype)) for path in paths}
        how = {"rounds": arguments.rounds, "calls": arguments.calls}
        timings = in_turn(sides, **how, most_others=most_others(device))
        found = {path: timings.row(path) for path in paths}
        rows.append({"name": name, "shape": asdict(shape), "paths": found})
        print(f"{name}: {shape.batch} streams")
        for path, row in found.items():
            ratio = timings.ratio(path, "with_bias")
            low, high = row["low_ms"], row["high_ms"]
            print(
                f"  {path:10s} {row['median_ms']:9.2f} ms [{low:.2f}-{high:.2f}]  "
                f"{ratio:5.2f} of with_bias"
            )
    content = {"device": device, "dtype": dtype, "shapes": rows}
    write_result(arguments.json, f"attention_paths_{device}_{dtype}", content)
    return 0


def path_step(shape: Shape, path: str, device: str, dtype: str) -> Callable[[], object]:
    """Forward and backward of the core of one attention block."""
    import torch

    from model.attention_kernels import KERNELS, AttentionInputs
    from model.state import Segment

    torch.manual_seed(0)
    kind = {"device": torch.device(device), "dtype": getattr(torch, dtype)}
    heads, width = shape.n_heads, shape.d_model // shape.n_heads
    keys = shape.memory + shape.segment
    queries = (shape.batch, shape.segment, heads, width)
    content = (shape.batch, keys, heads, width)
    sizes = [queries, content, content, (heads, width), (heads, width)]
    numbers = [torch.randn(size, **kind).mul_(width**-0.25) for size in sizes]
    w_r_ED = torch.randn(heads * width, shape.d_model, **kind).mul_(shape.d_model**-0.5)
    inputs = [tensor.requires_grad_() for tensor in (*numbers, w_r_ED)]
    q_BTHK, k_BSHK, value_BSHK, u_HK, v_HK, w_r_ED = inputs
    grad_BTHK = torch.randn(queries, **kind)
    seen_B = torch.full((shape.batch,), shape.memory, device=kind["device"])
    segment = Segment(seen_B, shape.segment, full=True, kernel=path)

    def take() -> None:
        r_SD = segment.encodings(shape.memory, shape.d_model, None, kind["dtype"])
        r_SHK = (r_SD @ w_r_ED.T).view(keys, heads, width)
        mask_BTS = segment.mask(shape.memory, None, kind["dtype"])
        given = AttentionInputs(q_BTHK, k_BSHK, value_BSHK, r_SHK, u_HK, v_HK, mask_BTS[:, None])
        out_BTHK = KERNELS[path](given, 0.0)
        torch.autograd.grad(out_BTHK, inputs, grad_BTHK)

    return take


if __name__ == "__main__":
    sys.exit(main())
