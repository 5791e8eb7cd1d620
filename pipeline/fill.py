"""What a budget leaves is spent on the width of dense blocks, so that layouts compare at one cost.

Width last: Nemotron-Flash (arXiv 2511.18890, section 2.2) sets it so that every layout has the same
latency, and one number ranks them.
"""

from dataclasses import dataclass

from model import Layout, TimedCost, layout_letters
from nas.costs.budget import Budget
from nas.opponents.equal_cost import dense_widths, with_width
from pipeline.context import RunPlan
from pipeline.costs import counted_share, measure_whole, over, over_text
from utils.screen import say

_TRIES, _NARROWER = 4, 0.95


@dataclass(frozen=True)
class Filled:
    """A layout with wider dense blocks, and its times beside the limits; `words` say how wide."""

    layout: Layout
    times: tuple[TimedCost, ...]
    words: str


def fill_width(plan: RunPlan, budget: Budget, layout: Layout) -> Filled | None:
    """Widen the dense blocks of a layout, all by one factor, as far as every limit allows.

    Costs are linear in the width: they are counted, or measured, at the layout's own width and at
    twice that. What turns out to be over a limit when it is measured is narrowed. None:
    nothing was widened, and a line says why; the layout keeps the limits by what was measured
    before.
    """
    double = with_width(layout, 2.0)
    if double == layout:
        say("derive.fill: the layout has no dense block to widen")
        return None
    measured = measure_whole(plan, budget, [layout, double])
    one, two = (
        measured.share(each) | counted_share(plan, budget, each) for each in (layout, double)
    )
    # The width at which the first limit is reached; a cost that does not rise limits nothing.
    rooms = [(1.0 - one[name]) / (two[name] - one[name]) for name in one if two[name] > one[name]]
    if not rooms:
        say(f"derive.fill: width costs nothing of {', '.join(one)}, so nothing is widened")
        return None
    more = max(0.0, min(rooms))
    for _ in range(_TRIES):
        wider = with_width(layout, 1.0 + more)
        if wider == layout:
            break
        measured = measure_whole(plan, budget, [wider])
        share = measured.share(wider) | counted_share(plan, budget, wider)
        if not (too_much := over(share)):
            return Filled(wider, measured.costs(wider), f"d_ffn filled to {_factor(layout, wider)}")
        say(f"{layout_letters(wider)} is over its {over_text(too_much)}; a narrower one is tried")
        more *= _NARROWER / max(too_much.values())
    say("derive.fill: no wider layout kept the budget, so nothing is widened")
    return None


def _factor(layout: Layout, wider: Layout) -> str:
    return f"{sum(dense_widths(wider)) / sum(dense_widths(layout)):.2f}x"
