"""Sandwiches of every k, cut to the chosen layout's cost by leaving slots out."""

from dataclasses import replace

from model import Layout
from nas.derivation.rules import sandwich
from nas.opponents.base import TOLERANCE, Contest, NoOpponent, Opponent
from nas.opponents.interleaved_short import most_slots


def sandwich_k(contest: Contest) -> list[Opponent]:
    """s^k (s f)^(n - k) f^k for every k > 0, of the most slots that interleaved may have.

    Press et al. (2020, arXiv 1911.03864, section 5). The order of blocks hardly changes a cost,
    but each is measured, and left out where it costs more by 3%. NoOpponent where none is left.
    """
    slots, _ = most_slots(contest, "sandwich_k")
    request, opponents = contest.request, list[Opponent]()
    k_of: dict[Layout, int] = {}
    for k in range(1, slots // 2 + 1):
        config = request.config.model_copy(update={"k": k})
        # The last two of an even number of slots are one layout.
        k_of.setdefault(sandwich(replace(request, slots=slots, config=config)).layout, k)
    layouts = [*k_of]
    new = set(contest.new(layouts))
    for layout, share in zip(layouts, contest.measured(layouts), strict=True):
        if share <= 1.0 + TOLERANCE and layout in new:
            k = k_of[layout]
            words = f"sandwich, k = {k}, of {slots} slots, {contest.cost} {share:.3f}x"
            opponents.append(Opponent(f"sandwich-{slots}-k{k}", layout, words, share))
    if not opponents:
        raise NoOpponent(
            f"sandwich_k: no other sandwich of {slots} slots has the chosen layout's {contest.cost}"
        )
    return opponents
