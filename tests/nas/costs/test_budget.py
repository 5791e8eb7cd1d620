"""Budgets: amounts with units, what layouts cost, and which limits are refused."""

from typing import Any

import pytest

from nas.costs.budget import Amount, Budget, LayoutCost, Limit, parse_amount
from nas.costs.config import BudgetConfig
from tests import tiny

ATTENTION, DENSE, IDENTITY = tiny.candidates("attention", "dense", "identity")
FLOPS = LayoutCost("flops", {"attention": 5.0, "dense": 3.0, "identity": 0.0}, 10.0)


def test_an_amount_has_a_unit() -> None:
    for cost, amounts in {
        "latency": {"4.5ms": 4.5, "450 us": 0.45},
        "train_step": {"1.5s": 1500.0},
        "parameters": {"2M": 2e6, 1234: 1234.0},
        "flops": {512309.3068505438: 512309.3068505438, 1e22: 1e22, "1.5e6": 1.5e6, ".5G": 5e8},
        "cache": {"64KiB": 65536.0, "64kB": 64000.0},
        "throughput": {"40k": 40e3},
    }.items():
        for given, value in amounts.items():
            amount = parse_amount(cost, given)
            assert not amount.relative
            assert amount.of(123.0) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("cost", BudgetConfig.model_fields)
def test_a_relative_amount_is_so_many_times_the_reference(cost: str) -> None:
    assert parse_amount(cost, "0.65x") == Amount(0.65, relative=True)
    assert parse_amount(cost, "0.65x").of(200.0) == 130.0


@pytest.mark.parametrize(
    ("cost", "given"),
    [
        ("latency", "4.5"), ("latency", 4.5), ("latency", "4.5 parsecs"), ("parameters", "2ms"),
        ("cache", 512), ("flops", "-1M"), ("flops", -1), ("flops", "1M2"), ("latency", ""),
        ("latency", "x"), ("latency", "ms"), ("parameters", "0.5X"), ("latency", "1,5ms"),
    ],
)  # fmt: skip
def test_an_unknown_unit_is_refused_with_an_example(cost: str, given: Any) -> None:
    with pytest.raises(ValueError, match=r"expected an amount such as 0\.65x .*found ") as info:
        parse_amount(cost, given)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("given", ["0x", 0, "0M", "1e999"])
def test_an_amount_is_above_0_and_finite(given: Any) -> None:
    with pytest.raises(ValueError, match="must be above 0 and finite"):
        parse_amount("flops", given)


def test_a_layout_costs_the_sum_of_its_slots_and_the_rest() -> None:
    assert FLOPS([ATTENTION, DENSE, IDENTITY, DENSE]) == 21.0
    assert FLOPS.additive


def test_slots_that_share_weights_share_their_parameters() -> None:
    shared = LayoutCost("parameters", {"attention": 5.0, "dense": 3.0}, 10.0, tie_blocks=2)
    assert not shared.additive
    assert shared([ATTENTION, DENSE, ATTENTION, DENSE]) == 18.0
    assert shared([ATTENTION, DENSE, DENSE, DENSE]) == 21.0


def test_a_layout_that_costs_just_the_limit_keeps_it() -> None:
    cost = LayoutCost("flops", {"attention": 0.1, "dense": 0.2}, 0.0)
    assert 0.1 + 0.2 > 0.3
    assert Limit(cost, 0.3).holds([ATTENTION, DENSE])
    assert not Limit(cost, 0.3).holds([DENSE, DENSE])
    assert Limit(cost, 0.3).allows([0.1, 0.4]).tolist() == [True, False]


def budget(name: str = "flops", **amounts: str) -> Budget:
    costs = {each: LayoutCost(each, FLOPS.by_label, FLOPS.rest) for each in amounts}
    parsed = {each: parse_amount(each, given) for each, given in amounts.items()}
    return Budget(parsed, costs, (ATTENTION, DENSE, ATTENTION, DENSE), "interleaved", 100)


def test_limits_are_absolute_or_multiples_of_the_reference() -> None:
    several = budget(flops="0.5x", parameters="20")
    assert [limit.most for limit in several.limits()] == [13.0, 20.0]
    assert [limit.most for limit in several.limits({"flops": 0.9})] == pytest.approx([11.7, 20.0])


def test_throughput_is_a_least_number_of_tokens_per_second() -> None:
    """Kept as the time of a pass, which may be at most so long."""
    assert budget(throughput="2x").most("throughput", 8.0) == 4.0
    assert budget(throughput="50k").most("throughput", 8.0) == 2.0  # 100 tokens in 2 ms


def check(given: Budget) -> None:
    given.check([ATTENTION, DENSE, IDENTITY], 4)


def test_a_budget_below_the_cheapest_layout_is_refused() -> None:
    check(budget(flops="0.5x"))
    check(budget(flops="10"))
    with pytest.raises(
        ValueError,
        match=r"^derive\.budget\.flops: no layout is within 8 FLOPs per token \(0\.300x of "
        r"interleaved\): the cheapest, i i i i, has 10 FLOPs per token \(0\.385x of interleaved\); "
        r"give a larger budget$",
    ):
        check(budget(flops="0.3x"))
    with pytest.raises(
        ValueError,
        match=r"flops: no layout is within 9 .* \(0.65x would be.*\nderive\.budget\.cache: ",
    ) as info:
        check(budget(flops="9", cache="9B"))
    assert len(str(info.value).splitlines()) == 2
