"""The plain Transformer-XL, cut to the chosen layout's cost by leaving slots out."""

from nas.opponents.base import TOLERANCE, Contest, NoOpponent, Opponent

# Predictions err, so somewhat dearer ones are measured too.
_MEASURED = 1.15


def interleaved_short(contest: Contest) -> list[Opponent]:
    """Interleaved with the most slots that cost no more than the chosen layout, but 3%.

    NoOpponent where the whole of it costs no more, or even one slot costs more.
    """
    whole = contest.interleaved()
    shorter = [whole[:slots] for slots in range(len(whole), 0, -1)]
    likely = [layout for layout in shorter if contest.predicted(layout) <= _MEASURED]
    for layout, share in zip(likely, contest.measured(likely), strict=True):
        if share <= 1.0 + TOLERANCE:
            if layout == whole:
                raise NoOpponent(
                    f"interleaved_short: interleaved costs {share:.3f}x of the chosen layout's "
                    f"{contest.cost}, so nothing is cut"
                )
            words = f"interleaved of {len(layout)} slots, {contest.cost} {share:.3f}x"
            return [Opponent(f"interleaved-{len(layout)}", layout, words)]
    raise NoOpponent(f"interleaved_short: even one slot costs more {contest.cost}")
