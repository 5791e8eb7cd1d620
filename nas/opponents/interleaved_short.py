"""The plain Transformer-XL, cut to the chosen layout's cost by leaving slots out."""

from nas.opponents.base import TOLERANCE, Contest, NoOpponent, Opponent

# Predictions err, so somewhat dearer ones are measured too.
_MEASURED = 1.15


def interleaved_short(contest: Contest) -> list[Opponent]:
    """Interleaved with the most slots that cost no more than the chosen layout, but 3%.

    NoOpponent where the whole of it costs no more, or even one slot costs more.
    """
    slots, share = most_slots(contest, "interleaved_short")
    whole = contest.interleaved()
    if slots == len(whole):
        raise NoOpponent(
            f"interleaved_short: interleaved costs {share:.3f}x of the chosen layout's "
            f"{contest.cost}, so nothing is cut"
        )
    words = f"interleaved of {slots} slots, {contest.cost} {share:.3f}x"
    return [Opponent(f"interleaved-{slots}", whole[:slots], words, share)]


def most_slots(contest: Contest, name: str) -> tuple[int, float]:
    """How many slots of interleaved cost no more than the chosen layout, but 3%, and their share.

    NoOpponent, of that name, where even one costs more.
    """
    whole = contest.interleaved()
    shorter = [whole[:slots] for slots in range(len(whole), 0, -1)]
    likely = [layout for layout in shorter if contest.predicted(layout) <= _MEASURED]
    for layout, share in zip(likely, contest.measured(likely), strict=True):
        if share <= 1.0 + TOLERANCE:
            return len(layout), share
    raise NoOpponent(f"{name}: even one slot costs more {contest.cost}")
