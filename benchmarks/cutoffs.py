"""Find the cutoffs of an adaptive softmax that make a training step fastest.

For the text and the sizes of an experiment, or for FILE, which holds one number per word of the
vocabulary, its count or its probability, in any order, separated by blanks or line ends; it does
not hold the words themselves. `--clusters 4` is a head and three tails. The time of a cluster was
measured on one CPU core (benchmarks/optimal_cutoffs.py).

    python -m benchmarks.cutoffs EXPERIMENT.yaml --clusters 4
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

    from benchmarks.optimal_cutoffs import ClusterCosts


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser(None, __doc__)
    parser.prog = "python -m benchmarks.cutoffs"
    add, size = parser.add_argument, cli.number_from(1, 2**24)
    add("experiment", type=Path, nargs="?", help="whose text and sizes are meant")
    add("--counts", type=Path, metavar="FILE", help="counts or probabilities, in its place")
    add("--clusters", type=cli.number_from(2, 65), default=4, metavar="N", help="head included")
    add("--d-model", type=size, metavar="N", help="width of the head (default: 512)")
    add("--factor", type=float, help="tail t has width d_model / factor^t (default: 4)")
    add("--sizes", type=int, nargs="+", metavar="WIDTH", help="tail widths, in place of --factor")
    add("--tokens", type=size, metavar="N", help="tokens per step (default: 1024)")
    add("--least-head-mass", type=float, default=0.75, metavar="PART", help="part of the tokens")
    arguments = parser.parse_args(argv)
    if (arguments.experiment is None) == (arguments.counts is None):
        parser.error("give either an experiment or --counts FILE")
    with cli.user_errors():
        print(find(arguments))
    return 0


def find(arguments: argparse.Namespace) -> str:
    """The cutoffs as a line of YAML, and a table of the clusters."""
    from pydantic import ValidationError

    from benchmarks.optimal_cutoffs import MEASURED, ClusterCosts, optimal_cutoffs
    from model.config import DEFAULT_FACTOR, SoftmaxConfig

    factor, sizes = arguments.factor, arguments.sizes
    if factor is None and sizes is None:
        factor = DEFAULT_FACTOR
    try:
        # Of as many tails; their places are to be found.
        some = tuple(range(1, arguments.clusters))
        softmax = SoftmaxConfig(cutoffs=some, factor=factor, sizes=sizes)
    except ValidationError as error:
        raise ValueError(f"--clusters, --factor, --sizes: {error.errors()[0]['msg']}") from None
    count_V, d_model, tokens, head = asked(arguments)
    options: dict[str, Any] = {
        "d_model": d_model,
        "widths": softmax.tail_widths(head or d_model),
        "tokens": tokens,
        "constants": MEASURED,
        "head_width": head,
    }
    try:
        mass = arguments.least_head_mass
        cutoffs = optimal_cutoffs(count_V, **options, least_head_mass=mass)
    except ValueError as error:
        raise ValueError(f"{arguments.counts or arguments.experiment}: {error}") from None
    widths = f"sizes: {list(softmax.sizes)}" if softmax.sizes else f"factor: {softmax.factor:g}"
    yaml = f"softmax: {{cutoffs: {list(cutoffs)}, {widths}}}"
    return yaml + "\n" + table(ClusterCosts(count_V, **options), cutoffs)


def asked(arguments: argparse.Namespace) -> "tuple[NDArray[np.float64], int, int, int | None]":
    """Counts, width of the model, tokens of a step, and width of the head where it is narrower."""
    d_model, tokens, head = arguments.d_model or 512, arguments.tokens or 1024, None
    if arguments.counts is not None:
        text = arguments.counts.read_text("utf-8")
        try:
            return sorted_counts(list(map(float, text.split()))), d_model, tokens, head
        except ValueError as error:
            raise ValueError(f"{arguments.counts}: {error}") from None
    from pipeline.experiment import load_experiment
    from pipeline.plan import set_up

    experiment = load_experiment(arguments.experiment)
    counts = set_up(experiment, Path("runs/cutoffs")).prepared.counts_V
    model, data = experiment.model, experiment.data
    d_model = arguments.d_model or model.d_model
    tokens = arguments.tokens or data.batch * data.segment
    return sorted_counts(counts.tolist()), d_model, tokens, model.d_embedding


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
