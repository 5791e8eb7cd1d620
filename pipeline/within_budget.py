"""The best layout within a budget, where times are limited by measuring it whole, and its width.

What a budget leaves may be spent on the width of dense blocks, so that layouts compare at one cost:
Nemotron-Flash (arXiv 2511.18890, section 2.2) sets it last, so that one number ranks them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model import Layout, TimedCost, layout_letters
from nas.costs.budget import Budget
from nas.derivation import DERIVATIONS, RULES, SEARCHED, TRAINED, Derived, Request
from nas.derivation.base import NoLayout
from nas.derivation.config import DeriveConfig
from nas.derivation.ranking import pool
from nas.opponents.equal_cost import dense_widths, with_width
from pipeline.costs import counted_share, measure_whole, over, over_text
from pipeline.plan import RunPlan
from utils.screen import say

# How often limits are tightened, and how many layouts and how often are measured whole for each.
_TIGHTENED, _POOL, _POOLS = 3, 16, 4
# What is predicted over a limit by so many mean errors of predictions may be within it.
_SLACK_ERRORS = 2.0


def within_budget(
    plan: RunPlan, request: Request, budget: Budget | None
) -> tuple[Derived, tuple[TimedCost, ...]]:
    """The best layout that keeps the budget; where times are limited, by measuring it whole.

    A table's prediction errs by some per cent, so layouts that it puts just above the limit are
    measured too, but for methods that would train them. Where every layout of the pool turns out
    to be over, the limits are tightened by how much the least of them is, and the pool is made
    anew.
    """
    method = DERIVATIONS[request.config.method]
    if budget is None:
        return method(request), ()
    if request.config.method in RULES and request.config.method != "random":
        return _rule_within_budget(plan, request, budget, method(request))
    slack = 0.0 if request.config.method in TRAINED else _SLACK_ERRORS
    factors = {name: 1.0 + slack * cost.error for name, cost in budget.costs.items()}
    least: dict[str, float] = {}
    for _ in range(_TIGHTENED):
        try:
            derived = method(replace(request, limits=(*request.limits, *budget.limits(factors))))
        except NoLayout:
            if not least:
                raise
            break
        measured = _measured_in_order(plan, budget, derived.ranked or (derived.layout,))
        for layout, (excess, times) in measured.items():
            if not excess:
                return _chosen(derived, layout), times
        least = min((excess for excess, _ in measured.values()), key=lambda of: max(of.values()))
        say(f"of {len(measured)} layouts measured all are over, the least {over_text(least)}")
        factors |= {cost: factors[cost] / times for cost, times in least.items()}
    raise ValueError(
        f"derive.budget: no layout was within it when it was measured (the least over by "
        f"{over_text(least)}); give a larger one, or measure the table again on a quiet machine "
        "(tools.latency)"
    )


def _chosen(derived: Derived, layout: Layout) -> Derived:
    """The derivation whose answer is this layout of its ranking, with that layout's own score."""
    if layout == derived.layout:
        return derived
    place = derived.ranked.index(layout) + 1
    method = f"{derived.evidence.method}; number {place}, as those before it were over the budget"
    score = next((one.score for one in derived.considered if one.layout == layout), None)
    update = {"method": method, "inherited": None if score is None else score.measured()}
    return replace(derived, layout=layout, evidence=derived.evidence.model_copy(update=update))


def budget_words(config: DeriveConfig) -> str | None:
    """The budget as an architecture keeps it; None where there is none."""
    given = config.budget.model_dump(exclude_none=True)
    if not given:
        return None
    limits = ", ".join(f"{name} {amount}" for name, amount in given.items())
    relative = any(str(amount).endswith("x") for amount in given.values())
    return f"{limits} (x of {config.reference})" if relative else limits


def used_words(plan: RunPlan, budget: Budget, layout: Layout) -> str:
    """How much of what is counted a layout uses, as parts of the limits; nothing of times."""
    shares = counted_share(plan, budget, layout).items()
    used = ", ".join(f"{name} {share:.1%}" for name, share in shares)
    return f"; used: {used}" if used else ""


def _measured_in_order(
    plan: RunPlan, budget: Budget, ranked: Sequence[Layout]
) -> dict[Layout, tuple[dict[str, float], tuple[TimedCost, ...]]]:
    """By how much layouts are over, measured whole in pools of no near twins; in the given order.

    A layout may have been passed over as the twin of one that then turned out to be over. Where
    it comes before the first that is not, it is measured too.
    """
    known: dict[Layout, tuple[dict[str, float], tuple[TimedCost, ...]]] = {}
    for _ in range(_POOLS):
        within = (at for at, one in enumerate(ranked) if one in known and not known[one][0])
        first = next(within, None)
        if known and first is None:
            break
        rest = [one for one in ranked[:first] if one not in known]
        members = rest[:_POOL] if known else pool(rest, _POOL)
        if not members:
            break
        measured = measure_whole(plan, budget, members)
        for layout in members:
            known[layout] = over(measured.share(layout)), measured.costs(layout)
    return {layout: known[layout] for layout in ranked if layout in known}


def _rule_within_budget(
    plan: RunPlan, request: Request, budget: Budget, derived: Derived
) -> tuple[Derived, tuple[TimedCost, ...]]:
    measured = measure_whole(plan, budget, [derived.layout])
    share = counted_share(plan, budget, derived.layout) | measured.share(derived.layout)
    if too_much := over(share):
        raise ValueError(
            f"derive.budget: {layout_letters(derived.layout)} ({derived.evidence.method}) is over "
            f"{budget_words(request.config)}: {over_text(too_much)}; give a larger one, or a "
            f"method that chooses ({', '.join([*SEARCHED, *TRAINED, 'random'])})"
        )
    return derived, measured.costs(derived.layout)


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
