"""Random layouts that cost what the chosen one costs."""

from collections.abc import Iterator
from itertools import islice

import numpy as np

from model import Layout
from nas.opponents.base import TOLERANCE, TRIES, Contest, NoOpponent, Opponent, is_equal

# So many more than are wanted are measured at once, because a prediction errs.
_MORE = 4


def random_equal(contest: Contest) -> list[Opponent]:
    """Uniform draws, each another network, that cost as much when they are predicted and measured.

    Li and Talwalkar (2019, arXiv 1902.07638): a search that does not beat random layouts of its
    cost found nothing. The draw of seed k depends on k alone. There may be fewer than are wanted;
    NoOpponent where there is none.
    """
    opponents = list[Opponent]()
    limits = [limit.holds for limit in contest.request.limits]
    likely = (
        layout
        for layout in contest.new(_layouts(contest))
        if is_equal(contest.predicted(layout)) and all(fits(layout) for fits in limits)
    )
    while len(opponents) < contest.count:
        batch = list(islice(likely, contest.count - len(opponents) + _MORE))
        if not batch:
            break
        for layout, share in zip(batch, contest.measured(batch), strict=True):
            if is_equal(share) and len(opponents) < contest.count:
                words = f"random, {contest.cost} {share:.3f}x of the chosen layout's"
                opponents.append(Opponent(f"random-{len(opponents)}", layout, words, share))
    if not opponents:
        raise NoOpponent(
            f"random: there is no other network within {TOLERANCE:.0%} of the chosen layout's "
            f"{contest.cost}"
        )
    return opponents


def _layouts(contest: Contest) -> Iterator[Layout]:
    """Draws; where the layouts can be listed, all of them behind the draws, in random order."""
    networks, slots = contest.request.networks, contest.request.slots
    generator = np.random.default_rng(contest.request.config.seed)
    candidates = len(contest.request.candidates)
    for _ in range(TRIES):
        yield networks.layout(tuple(generator.integers(candidates, size=slots).tolist()))
    if networks.listed(slots):
        every = list(networks.layouts(slots))
        for index in generator.permutation(len(every)).tolist():
            yield networks.layout(every[index])
