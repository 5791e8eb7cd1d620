"""Find the cutoffs of an adaptive softmax that make a training step cheapest.

FILE holds one number per word of the vocabulary, its count or its probability, in any order, with
lines or blanks between them; words themselves do not belong in it. `--clusters 4` is a head and
three tails. The constants default to those measured on one CPU core (model/cutoffs.py);
`python -m benchmarks.softmax_constants` measures another machine's. In an experiment file
`model.softmax.cutoffs: auto` does the same for its own text.

    python -m tools.cutoffs --counts FILE --clusters 4
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli, exit_codes

if TYPE_CHECKING:
    from model.config import AutoSoftmaxConfig
    from model.cutoffs import ClusterCosts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with exit_codes.user_errors():
        print(find(arguments))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("cutoffs", __doc__)
    add = parser.add_argument
    add("--counts", type=Path, required=True, metavar="FILE", help="counts or probabilities")
    add("--clusters", type=int, default=4, metavar="N", help="head and tails")
    size = cli.number_from(1, 2**24)
    add("--d-model", type=size, default=512, metavar="N", help="width of the head")
    add("--factor", type=float, help="tail t has width d_model / factor^t (default: 4)")
    add("--sizes", type=int, nargs="+", metavar="WIDTH", help="widths of the tails, instead")
    add("--tokens", type=size, default=1024, metavar="N", help="of one step")
    add("--least-head-mass", type=float, metavar="PART", help="of the tokens (default: 0.5)")
    seconds: dict[str, Any] = {"type": float, "metavar": "SECONDS", "default": argparse.SUPPRESS}
    add("--launch", dest="launch_s", **seconds,
        help="that a cluster takes at least (default: 0.00022)")  # fmt: skip
    add("--multiply-add", dest="multiply_add_s", **seconds,
        help="of a multiply-add, there and back (default: 5.7e-11)")  # fmt: skip
    add("--logit", dest="logit_s", **seconds,
        help="of the softmax over one logit (default: 6.2e-09)")  # fmt: skip
    add("--threshold", type=float, metavar="N", default=argparse.SUPPRESS,
        help="multiply-adds below which none gets cheaper (default: 0)")  # fmt: skip
    return parser.parse_args(argv)


def find(arguments: argparse.Namespace) -> str:
    """The cutoffs as a line of YAML, and a table of the clusters."""
    from model.cutoffs import (
        DEFAULT_HEAD_MASS,
        MEASURED,
        ClusterCosts,
        optimal_cutoffs,
        sorted_counts,
    )

    mass = arguments.least_head_mass
    softmax = softmax_of(arguments)
    names = "launch_s", "multiply_add_s", "logit_s", "threshold"
    constants = {name: vars(arguments)[name] for name in names if name in arguments}
    options: dict[str, Any] = {
        "d_model": arguments.d_model,
        "widths": softmax.tail_widths(arguments.d_model),
        "tokens": arguments.tokens,
        "constants": replace(MEASURED, **constants),
    }
    numbers = read_counts(arguments.counts)
    try:
        count_V = sorted_counts(numbers)
        cutoffs = optimal_cutoffs(
            count_V, **options, least_head_mass=DEFAULT_HEAD_MASS if mass is None else mass
        )
    except ValueError as error:
        raise ValueError(f"{arguments.counts}: {error}") from None
    widths = f"sizes: {list(softmax.sizes)}" if softmax.sizes else f"factor: {softmax.factor:g}"
    yaml = f"softmax: {{cutoffs: {list(cutoffs)}, {widths}}}"
    return yaml + "\n" + table(ClusterCosts(count_V, **options), cutoffs)


def table(costs: "ClusterCosts", cutoffs: tuple[int, ...]) -> str:
    """Words, width, part of the tokens and time of each cluster."""
    vocabulary, seconds = len(costs.count_V), costs.clusters(cutoffs)
    lines = [f"{'cluster':<8}{'words':>12}{'width':>7}{'tokens':>9}{'ms per step':>13}"]
    bounds, widths = pairwise((0, *cutoffs, vocabulary)), (costs.d_model, *costs.widths)
    for index, ((low, high), width, spent) in enumerate(zip(bounds, widths, seconds, strict=True)):
        name = f"tail {index}" if index else "head"
        mass = float(costs.mass_W[high] - costs.mass_W[low])
        lines.append(f"{name:<8}{high - low:>12,}{width:>7}{mass:>9.1%}{spent * 1e3:>13.3f}")
    lines.append(f"{'all':<8}{vocabulary:>12,}{'':>7}{1:>9.1%}{sum(seconds) * 1e3:>13.3f}")
    return "\n".join(lines)


def softmax_of(arguments: argparse.Namespace) -> "AutoSoftmaxConfig":
    """Clusters and widths, checked as in an experiment file."""
    from pydantic import ValidationError

    from model.config import DEFAULT_FACTOR, AutoSoftmaxConfig

    factor = arguments.factor
    if factor is None and arguments.sizes is None:
        factor = DEFAULT_FACTOR
    try:
        widths = {"clusters": arguments.clusters, "factor": factor, "sizes": arguments.sizes}
        return AutoSoftmaxConfig.model_validate({"cutoffs": "auto", **widths})
    except ValidationError as error:
        raise ValueError(f"--clusters, --factor, --sizes: {error.errors()[0]['msg']}") from None


def read_counts(path: Path) -> list[float]:
    """The numbers of a file; ValueError where something in it is no count."""
    counts = list[float]()
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                counts += map(float, line.split())
            except ValueError as error:
                raise ValueError(f"{path}:{number}: expected counts alone ({error})") from None
    return counts


if __name__ == "__main__":
    sys.exit(main())
