"""What layouts cost, and what they may cost at most: amounts with units, absolute or relative."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from model import Candidate, Layout


# What rounding may add to a sum of costs that is just the limit.
ROUNDING = 1e-9
_COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIMES = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_COUNTED_UNITS = {"cache": " bytes", "parameters": "", "flops": " FLOPs per token"}
# By cost the factors of its units; times are kept in ms.
UNITS: Mapping[str, Mapping[str, float]] = {
    "latency": _TIMES,
    "decode": _TIMES,
    "train_step": _TIMES,
    "throughput": _COUNTS,
    "parameters": _COUNTS,
    "flops": _COUNTS,
    "cache": _BYTES,
}
# Costs that are measured, not counted.
MEASURED = tuple(cost for cost in UNITS if cost not in _COUNTED_UNITS)
_AMOUNT = re.compile(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class Amount:
    """A limit as it was given: so much, or so many times what the reference layout costs."""

    value: float
    relative: bool

    def of(self, reference: float) -> float:
        """The limit, where the reference costs so much."""
        return self.value * reference if self.relative else self.value


def parse_amount(cost: str, given: str | float, reference: str = "derive.reference") -> Amount:
    """An amount such as `0.65x`, `2M`, `4.5ms` or `512KiB`; ValueError says what is wrong.

    `reference` is the key of the layout that 0.65x is of.
    """
    units = UNITS[cost]
    text = given if isinstance(given, str) else repr(given)
    example = "4.5ms" if "ms" in units else "512KiB" if "KiB" in units else "2M"
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2] not in {"x", *units}:
        names = ", ".join(name for name in units if name)
        bare = ", or a plain number" if "" in units else ""
        raise ValueError(
            f"expected an amount such as 0.65x (of {reference}) or {example}; units are x, "
            f"{names}{bare}; found {given!r:.40}"
        )
    value = float(match[1])
    if not 0 < value < float("inf"):
        raise ValueError(f"must be above 0 and finite, found {given!r:.40}")
    if match[2] == "x":
        return Amount(value, relative=True)
    return Amount(value * units[match[2]], relative=False)


@dataclass(frozen=True)
class LayoutCost:
    """What a layout costs, added up over its slots from one table: all slots are alike.

    Where `tie_blocks` is given, slots so many apart share what a candidate costs (parameters).
    `error` is the mean relative error where costs are predicted; what is counted has none.
    """

    name: str
    by_label: Mapping[str, float]
    rest: float = 0.0
    tie_blocks: int | None = None
    error: float = 0.0

    @property
    def additive(self) -> bool:
        """Whether every slot adds what it costs."""
        return self.tie_blocks is None

    def __call__(self, layout: Sequence[Candidate]) -> float:
        """The cost of a layout, embedding and softmax included."""
        labels = [candidate.label for candidate in layout]
        if self.tie_blocks is None:
            return self.rest + sum(self.by_label[label] for label in labels)
        distinct = {(slot % self.tie_blocks, label) for slot, label in enumerate(labels)}
        return self.rest + sum(self.by_label[label] for _, label in distinct)


@dataclass(frozen=True)
class Limit:
    """What a layout may cost at most."""

    cost: LayoutCost
    most: float

    def allows(self, cost: Any) -> Any:
        """Whether a cost, or each of several, is within the limit, but for rounding."""
        return np.less_equal(cost, self.most * (1 + ROUNDING))

    def holds(self, layout: Sequence[Candidate]) -> bool:
        """Whether a layout is within the limit."""
        return self.over(layout) <= 0.0

    def over(self, layout: Sequence[Candidate]) -> float:
        """By how much a layout is above the limit, but for rounding."""
        return self.cost(layout) - self.most * (1 + ROUNDING)


@dataclass(frozen=True)
class Budget:
    """What layouts may cost, as it was asked for.

    Attributes:
        amounts: by the name of the cost.
        costs: what layouts cost by what is counted, or predicted from a table of times.
        reference: the layout of which relative amounts are multiples; `reference_name` its rule.
        pass_tokens: tokens that a pass of `throughput` reads.
        key: where it was asked for, for messages; {} is the cost.
    """

    amounts: Mapping[str, Amount]
    costs: Mapping[str, LayoutCost]
    reference: Layout
    reference_name: str
    pass_tokens: int
    key: str = "derive.budget.{}"

    def most(self, name: str, reference: float) -> float:
        """The limit where the reference costs so much; of throughput the time of a pass."""
        amount = self.amounts[name]
        if name != "throughput":
            return amount.of(reference)
        return (
            reference / amount.value if amount.relative else 1e3 * self.pass_tokens / amount.value
        )

    def limits(self, factors: Mapping[str, float] | None = None) -> tuple[Limit, ...]:
        """The limits; those of `factors` are so many times as large."""
        return tuple(
            Limit(cost, (factors or {}).get(name, 1.0) * self.most(name, cost(self.reference)))
            for name, cost in self.costs.items()
        )

    def check(self, candidates: Sequence[Candidate], slots: int) -> None:
        """Raise ValueError where no layout is within a limit."""
        problems = list[str]()
        for limit in self.limits():
            name, by_label = limit.cost.name, limit.cost.by_label
            cheapest = (min(reversed(candidates), key=lambda one: by_label[one.label]),) * slots
            if not limit.most:
                unit = "bytes" if name == "cache" else "an amount with a unit"
                given = f"{self.amounts[name].value:g}x of {self.reference_name}"
                words = f"{given}, which costs 0; give {unit}"
            elif not limit.holds(cheapest):
                from model import layout_letters

                words = f"no layout is within {self.shown(name, limit.most)}: the cheapest, "
                words += f"{layout_letters(cheapest)}, has "
                words += f"{self.shown(name, limit.cost(cheapest))}; give a larger budget"
                if not self.amounts[name].relative:
                    words += f" (0.65x would be a share of {self.reference_name})"
            else:
                continue
            problems.append(f"{self.key.format(name)}: {words}")
        if problems:
            raise ValueError("\n".join(problems))

    def shown(self, name: str, value: float) -> str:
        """A cost for a person, beside the reference's; a time of `throughput` as its tokens."""
        reference = self.costs[name](self.reference)
        if name == "throughput":
            speed = 1e3 * self.pass_tokens / value
            text = f"{speed:{',.0f' if speed >= 100 else '.3g'}} tokens per second"
            value, reference = reference, value
        elif name in _COUNTED_UNITS:
            text = f"{value:,.0f}{_COUNTED_UNITS[name]}"
        else:
            text = f"{value:.4g} ms"
        times = f"{value / reference:.3f}x of {self.reference_name}" if reference else None
        return f"{text} ({times or f'{self.reference_name} costs 0'})"
