"""The best layout that keeps a budget, where times are limited by measuring it whole."""

from collections.abc import Sequence
from dataclasses import replace

from model import Layout, TimedCost, layout_letters
from nas.costs.budget import Budget
from nas.derivation import DERIVATIONS, RULES, SEARCHED, TRAINED, Derived, Request
from nas.derivation.base import NoLayout
from nas.derivation.config import DeriveConfig
from nas.derivation.ranking import pool
from pipeline.context import RunPlan
from pipeline.costs import counted_share, measure_whole, over, over_text
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
