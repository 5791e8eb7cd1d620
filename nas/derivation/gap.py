"""What discretising costs: the soft net, layouts drawn from pi, the derived layout.

All with the SuperNet's weights, on the same text; nothing is trained.
"""

import math
from collections.abc import Callable, Sequence

from model import Gap, Measured
from nas.derivation import Layout
from nas.statistics.paired_scores import Score, error_of_mean, mean_score


def discretisation_gap(
    score: Callable[[Layout], Score], soft: Score, drawn: Sequence[Layout], chosen: Layout
) -> Gap:
    """The three scores, and the chosen layout's perplexity over the soft net's.

    Args:
        score: nats of a layout itself, not of other layouts of its network.
        soft: the score of the net whose slots hold every candidate with its pi.
        drawn: layouts drawn from pi, each as often as it was drawn.
        chosen: the derived layout.
    """
    scores = [score(layout) for layout in drawn]
    one_hot = score(chosen)
    difference, error = one_hot.less(soft)
    ratio = math.exp(difference)
    return Gap(
        tokens=soft.tokens,
        soft=_measured(soft, soft.standard_error),
        sampled=_measured(mean_score(scores), error_of_mean(scores)),
        one_hot=_measured(one_hot, one_hot.standard_error),
        draws=len(drawn),
        ratio=round(ratio, 6),
        ratio_error=round(ratio * error, 6),
    )


def _measured(score: Score, error: float) -> Measured:
    return Measured(nats_per_token=round(score.nats_per_token, 6), standard_error=round(error, 6))
