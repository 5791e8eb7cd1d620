"""How fast the next token comes with keys and values kept, and when its context is read anew.

Both sides give the log-probabilities of what follows the same 512 tokens: the one reads the last of
them, the other all. The largest difference between the two is printed.

    python -m benchmarks.generation
    python -m benchmarks.generation --context 2048 --busy --json benchmarks/results/generation.json
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.shapes import Shape
from pipeline import cli

if TYPE_CHECKING:
    from torch import Tensor

SLOTS, D_MODEL = 12, 256


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--context", type=int, default=512, help="tokens, and rows of memory")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=6, help="tokens behind one figure")
    parser.add_argument("--busy", action="store_true", help="also where others use the machine")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.cpu_counters import MOST_OTHER_CORES
    from benchmarks.harness import Side, in_turn, write_result

    shape = Shape(D_MODEL, SLOTS, 4, 4 * D_MODEL, 1, 1, arguments.context, dropout=0.0)
    sides = {name: Side(next_token, (shape, name == "kept")) for name in ("kept", "anew")}
    most = float("inf") if arguments.busy else MOST_OTHER_CORES
    timings = in_turn(
        sides, rounds=arguments.rounds, calls=arguments.calls, warm=2, most_others=most
    )
    kept, anew = (next_token(shape, cached)() for cached in (True, False))
    difference = float((kept - anew).abs().max())
    ratio = timings.ratio("anew", "kept")
    ms = {name: timings.row(name)["median_ms"] for name in sides}
    print(
        f"{arguments.context} tokens of context: {1e3 / ms['kept']:.1f} tokens/s kept, "
        f"{1e3 / ms['anew']:.1f} anew, ratio {ratio:.1f}; log-probabilities differ by at most "
        f"{difference:.1e}"
    )
    content = {
        "shape": asdict(shape),
        "busy": arguments.busy,
        "sides": {name: timings.row(name) for name in sides},
        "ratios": timings.ratios("anew", "kept"),
        "ratio": ratio,
        "largest_difference": difference,
    }
    write_result(arguments.json, "generation", content)
    return 0


def next_token(shape: Shape, cached: bool) -> "Callable[[], Tensor]":
    """What gives the log-probabilities behind a context of as many tokens as rows of memory."""
    import torch

    from benchmarks.sides import our_model
    from model.generation import read

    torch.manual_seed(0)
    model = our_model(shape).eval()
    random = torch.Generator().manual_seed(0)
    ids_1T = torch.randint(shape.vocabulary, (1, shape.memory), generator=random)
    known = read(model, ids_1T[:, :-1], model.initial_state(1, cached=True)).state

    @torch.inference_mode()
    def anew() -> "Tensor":
        h_BTD, _, _ = model(ids_1T, model.initial_state(1))
        return model.log_prob(h_BTD[:, -1:])[:, 0]

    def kept() -> "Tensor":
        return read(model, ids_1T[:, -1:], known).log_prob_BV

    return kept if cached else anew


if __name__ == "__main__":
    sys.exit(main())
