"""How fast an evaluation is with the keys and values of the memory kept, and without.

Both sides score the same random text with the same weights; the nats per token are printed.

    python -m benchmarks.evaluation_time
    python -m benchmarks.evaluation_time --shape small --memory 512 --segments 1 16 64 128
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.shapes import SIZES, Shape
from pipeline import cli

STREAMS, TOKENS = 8, 4096


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--shape", choices=SIZES, default="large")
    parser.add_argument("--memory", type=int, default=512)
    parser.add_argument("--segments", type=int, nargs="+", default=[1, 16, 64, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import Side, in_turn, write_result

    rows = []
    for segment in arguments.segments:
        shape = replace(
            SIZES[arguments.shape], memory=arguments.memory, segment=segment, batch=STREAMS
        )
        tokens = min(TOKENS, 64 * STREAMS * segment)
        sides = {
            name: Side(evaluation, (shape, tokens, name == "kept")) for name in ("kept", "not kept")
        }
        timings = in_turn(sides, rounds=arguments.rounds, calls=1, warm=1)
        nats = [evaluation(shape, tokens, cached)() for cached in (True, False)]
        row = {
            "segment": segment,
            "ms_per_token": {n: timings.row(n)["median_ms"] / tokens for n in sides},
            "sides": {n: timings.row(n) for n in sides},
            "ratio": timings.ratio("not kept", "kept"),
            "nats_per_token": dict(zip(sides, nats, strict=True)),
        }
        rows.append(row)
        speed = {name: 1e3 * tokens / timings.row(name)["median_ms"] for name in sides}
        print(
            f"segment {segment:4d}: tokens/s {speed['kept']:8.0f} kept, {speed['not kept']:8.0f} "
            f"not, ratio {row['ratio']:.2f}, nats per token {nats[0]:.7f} and {nats[1]:.7f}"
        )
    found = {"shape": asdict(SIZES[arguments.shape]), "memory": arguments.memory, "rows": rows}
    write_result(arguments.json, "evaluation_time", found)
    return 0


def evaluation(shape: Shape, tokens: int, cached: bool) -> Callable[[], float]:
    """One pass over a random text; gives its nats per token."""
    import numpy as np
    import torch

    from benchmarks.sides import our_model
    from data import EvaluationStreams
    from training.evaluation import evaluate

    torch.manual_seed(0)
    model = our_model(shape)
    ids = np.random.default_rng(0).zipf(1.3, size=4 * tokens)
    text = ids[ids < shape.vocabulary][: tokens + 1].astype(np.int64)
    streams = EvaluationStreams(text, streams=shape.batch, segment=shape.segment)
    device = torch.device("cpu")

    def score() -> float:
        found = evaluate(model, streams, byte_length_V=None, device=device, cached=cached)
        return found.nats_per_token

    return score


if __name__ == "__main__":
    sys.exit(main())
