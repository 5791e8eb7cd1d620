"""Find the cutoffs of an adaptive softmax that make a training step fastest.

FILE holds one number per word of the vocabulary, its count or its probability, in any order,
separated by blanks or line ends; it does not hold the words themselves. `--clusters 4` is a head
and three tails. The time of a cluster was measured on one CPU core (model/cutoffs.py). In an
experiment file, `model.softmax.cutoffs: auto` does the same for the experiment's text.

    python -m benchmarks.cutoffs --counts FILE --clusters 4
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from model.cutoffs import ClusterCosts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser(None, __doc__)
    parser.prog = "python -m benchmarks.cutoffs"
    add, size = parser.add_argument, cli.number_from(1, 2**24)
    add("--counts", type=Path, required=True, metavar="FILE", help="counts or probabilities")
    add("--clusters", type=int, default=4, metavar="N", help="number of clusters, head included")
    add("--d-model", type=size, default=512, metavar="N", help="width of the head")
    add("--factor", type=float, help="tail t has width d_model / factor^t (default: 4)")
    add("--sizes", type=int, nargs="+", metavar="WIDTH", help="tail widths, in place of --factor")
    add("--tokens", type=size, default=1024, metavar="N", help="tokens per step")
    add("--least-head-mass", type=float, default=0.5, metavar="PART", help="part of the tokens")
    arguments = parser.parse_args(argv)
    with cli.user_errors():
        print(find(arguments))
    return 0


def find(arguments: argparse.Namespace) -> str:
    """The cutoffs as a line of YAML, and a table of the clusters."""
    from pydantic import ValidationError

    from model.config import DEFAULT_FACTOR, AutoSoftmaxConfig
    from model.cutoffs import MEASURED, ClusterCosts, optimal_cutoffs

    factor, sizes = arguments.factor, arguments.sizes
    if factor is None and sizes is None:
        factor = DEFAULT_FACTOR
    try:
        softmax = AutoSoftmaxConfig.model_validate(
            {"cutoffs": "auto", "clusters": arguments.clusters, "factor": factor, "sizes": sizes}
        )
    except ValidationError as error:
        raise ValueError(f"--clusters, --factor, --sizes: {error.errors()[0]['msg']}") from None
    options: dict[str, Any] = {
        "d_model": arguments.d_model,
        "widths": softmax.tail_widths(arguments.d_model),
        "tokens": arguments.tokens,
        "constants": MEASURED,
    }
    try:
        count_V = sorted_counts(list(map(float, arguments.counts.read_text("utf-8").split())))
        mass = arguments.least_head_mass
        cutoffs = optimal_cutoffs(count_V, **options, least_head_mass=mass)
    except ValueError as error:
        raise ValueError(f"{arguments.counts}: {error}") from None
    widths = f"sizes: {list(softmax.sizes)}" if softmax.sizes else f"factor: {softmax.factor:g}"
    yaml = f"softmax: {{cutoffs: {list(cutoffs)}, {widths}}}"
    return yaml + "\n" + table(ClusterCosts(count_V, **options), cutoffs)


def sorted_counts(counts: Sequence[float]) -> "NDArray[np.float64]":
    """The counts or probabilities by falling size; ValueError where they are none."""
    import numpy as np

    sorted_V = np.sort(np.asarray(counts, dtype=np.float64))[::-1]
    if not (np.isfinite(sorted_V).all() and sorted_V.sum() > 0 and sorted_V[-1] >= 0):
        raise ValueError("counts must be finite and at least 0, and not all 0")
    return sorted_V


def clusters(costs: "ClusterCosts", cutoffs: tuple[int, ...]) -> list[float]:
    """Seconds of the head and of each tail."""
    tails = enumerate(pairwise((*cutoffs, len(costs.count_V))))
    return [float(costs.head(cutoffs[0])), *(float(costs.tail(t, *ends)) for t, ends in tails)]


def table(costs: "ClusterCosts", cutoffs: tuple[int, ...]) -> str:
    """Words, width, part of the tokens and time of each cluster."""
    vocabulary, seconds = len(costs.count_V), clusters(costs, cutoffs)
    lines = [f"{'cluster':<8}{'words':>12}{'width':>7}{'tokens':>9}{'ms per step':>13}"]
    bounds, widths = pairwise((0, *cutoffs, vocabulary)), (costs.d_model, *costs.widths)
    for index, ((low, high), width, spent) in enumerate(zip(bounds, widths, seconds, strict=True)):
        name = f"tail {index}" if index else "head"
        mass = float(costs.mass_W[high] - costs.mass_W[low])
        lines.append(f"{name:<8}{high - low:>12,}{width:>7}{mass:>9.1%}{spent * 1e3:>13.3f}")
    lines.append(f"{'all':<8}{vocabulary:>12,}{'':>7}{1:>9.1%}{sum(seconds) * 1e3:>13.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
