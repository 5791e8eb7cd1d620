"""The plain Transformer-XL, cut to the chosen layout's cost by narrower dense blocks."""

from nas.opponents.base import TOLERANCE, Contest, NoOpponent, Opponent
from nas.opponents.width import dense_widths, with_width

# Costs are linear in the width, so widths around the line's are measured.
_AROUND = (1.1, 1.05, 1.0, 0.95, 0.9)
_PROBE = 0.5


def interleaved_narrow(contest: Contest) -> list[Opponent]:
    """Interleaved with the widest dense blocks that cost no more than the chosen layout, but 3%.

    NoOpponent where interleaved costs no more as it is, or the narrowest one costs more.
    """
    whole = contest.interleaved()
    narrowest = with_width(whole, 0.0)
    one, half, least = contest.measured([whole, with_width(whole, _PROBE), narrowest])
    if one <= 1.0 + TOLERANCE or least > 1.0 + TOLERANCE or one <= half:
        end = "as it is" if one <= 1.0 + TOLERANCE else "at its narrowest"
        share = one if one <= 1.0 + TOLERANCE else least
        raise NoOpponent(
            f"interleaved_narrow: interleaved costs {share:.3f}x of the chosen layout's "
            f"{contest.cost} {end}"
        )
    factor = 1.0 - (one - 1.0) * (1.0 - _PROBE) / (one - half)
    layouts = list(dict.fromkeys(with_width(whole, max(0.0, factor * by)) for by in _AROUND))
    layouts = [layout for layout in layouts if layout != whole] + [narrowest]
    for layout, share in zip(layouts, contest.measured(layouts), strict=True):
        if share <= 1.0 + TOLERANCE:
            (width, *_) = dense_widths(layout)
            words = f"interleaved with d_ffn {width}, {contest.cost} {share:.3f}x"
            return [Opponent(f"interleaved-ffn{width}", layout, words, share)]
    raise NoOpponent(f"interleaved_narrow: no width has the chosen layout's {contest.cost}")
