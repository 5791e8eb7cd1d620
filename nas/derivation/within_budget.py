"""The best layout within a budget, where times are limited by measuring it whole, and its width.

What a budget leaves may be spent on the width of dense blocks, so that layouts compare at one cost:
Nemotron-Flash (arXiv 2511.18890, section 2.2) sets it last, so that one number ranks them.
"""

from dataclasses import dataclass, replace
from itertools import islice

from model import Layout, TimedCost, layout_letters
from nas.baselines import dense_widths, with_width
from nas.costs.budget import Budget, Limit
from nas.costs.latency import WORKLOADS
from nas.costs.model import MOST_ERROR, CostModel, over_text
from nas.derivation import RULES, SEARCHED, TRAINED, method_of
from nas.derivation.base import Derived, Request
from utils.screen import say

Times = tuple[TimedCost, ...]
# What is scored may be predicted over a limit by so many mean errors of predictions; what is
# trained or drawn must be predicted below it by one.
_SLACK, _SAFE = 2.0, -1.0
# So many of a ranking are measured, and so many more of those predicted well within the limits.
_BEST, _SAFEST = 12, 4
_TRIES, _NARROWER = 4, 0.95


@dataclass(frozen=True)
class BudgetedDerivation:
    """What a method derives within a budget."""

    request: Request
    costs: CostModel
    budget: Budget

    def best(self) -> tuple[Derived, Times]:
        """The best of a method's ranking that keeps the budget, and its times measured in one run.

        Limits on what is counted hold exactly. A table's prediction of a time errs by some per
        cent: layouts that are scored may lie just above a limit too, and what is trained or drawn
        lies below it. Then the best ones are measured whole, once.

        ValueError: no layout is predicted within it, or none that was measured is.
        """
        name = self.request.config.method
        is_rule = name in RULES and name != "random"
        limits = () if is_rule else self._limits(_SLACK if name in SEARCHED else _SAFE)
        derived = method_of(name)(replace(self.request, limits=(*self.request.limits, *limits)))
        if not is_rule and not any(cost in WORKLOADS for cost in self.budget.amounts):
            return derived, ()
        ranked, safe = derived.ranked or (derived.layout,), self._limits(_SAFE)
        more = (one for one in ranked[_BEST:] if all(limit.holds(one) for limit in safe))
        used = self.costs.use(self.budget, [*ranked[:_BEST], *islice(more, _SAFEST)])
        for layout, use in used.items():
            if not use.over:
                return _chosen(derived, layout), use.times
        least = min(used, key=lambda layout: max(used[layout].over.values()))
        which = f"the nearest of {len(used)} measured"
        remedy = (
            "start the same command again, which measures these again and trains none twice, "
            "or measure the table again (tools.latency)"
        )
        if is_rule:
            which = derived.evidence.method
            remedy = f"or a method that chooses ({', '.join([*SEARCHED, *TRAINED, 'random'])})"
        raise ValueError(
            f"derive.budget: {layout_letters(least)} ({which}) exceeds {self.words()}: "
            f"{over_text(used[least].over)}; give a larger one, {remedy}"
        )

    def _limits(self, slack: float) -> tuple[Limit, ...]:
        errors = {name: min(cost.error, MOST_ERROR) for name, cost in self.budget.costs.items()}
        return self.budget.limits({name: 1.0 + slack * error for name, error in errors.items()})

    def words(self, layout: Layout | None = None) -> str:
        """The budget, and how much of what is counted a layout uses of it."""
        used = {} if layout is None else self.costs.counted_parts(self.budget, layout)
        limits = list[str]()
        for name, amount in self.request.config.budget.model_dump(exclude_none=True).items():
            of = f" of {self.budget.reference_name}" if str(amount).endswith("x") else ""
            share = f" ({used[name]:.1%} used)" if name in used else ""
            limits.append(f"{name} {amount}{of}{share}")
        return ", ".join(limits)

    def filled(self, layout: Layout) -> tuple[Layout, Times, str] | None:
        """Widen the dense blocks of a layout, all by one factor, as far as every limit allows.

        Costs are linear in the width: they are counted, or measured, at the layout's own width and
        at twice that. What turns out to be over a limit when it is measured is narrowed.

        Returns:
            The wider layout, its times, and how wide it is; None where nothing was widened.
        """
        double = with_width(layout, 2.0)
        uses = self.costs.use(self.budget, [layout, double])
        one, two = uses[layout].parts, uses[double].parts
        # The width that first reaches a limit; a cost that does not rise limits nothing.
        rising = [name for name in one if two[name] > one[name]]
        if not rising:
            say(f"derive.fill: width does not change {', '.join(one)}, so nothing is widened")
            return None
        more = max(0.0, min((1.0 - one[name]) / (two[name] - one[name]) for name in rising))
        for _ in range(_TRIES):
            wider = with_width(layout, 1.0 + more)
            if wider == layout:
                break
            use = self.costs.use(self.budget, [wider])[wider]
            if not use.over:
                factor = sum(dense_widths(wider)) / sum(dense_widths(layout))
                return wider, use.times, f"d_ffn widened to {factor:.2f}x"
            say(f"{layout_letters(wider)} exceeds {over_text(use.over)}; trying a narrower one")
            more *= _NARROWER / max(use.over.values())
        say("derive.fill: no wider layout is within the budget, so nothing is widened")
        return None


def _chosen(derived: Derived, layout: Layout) -> Derived:
    """The derivation whose answer is this layout of its ranking, with that layout's own score."""
    if layout == derived.layout:
        return derived
    place = derived.ranked.index(layout) + 1
    method = f"{derived.evidence.method}; number {place} is taken, as better ones exceed the budget"
    score = next((one.score for one in derived.considered if one.layout == layout), None)
    update = {"method": method, "inherited": None if score is None else score.measured()}
    return replace(derived, layout=layout, evidence=derived.evidence.model_copy(update=update))
