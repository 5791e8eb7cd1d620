"""Baselines that cost what the chosen layout costs, by costs that are counted on fingers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from model import Layout, layout_letters, network_of, parse_layout
from nas.baselines import (
    BASELINES,
    TOLERANCE,
    Baseline,
    Matching,
    NoBaseline,
    dense_widths,
    is_equal,
    with_width,
)
from nas.costs.budget import LayoutCost
from nas.derivation.base import Request
from nas.derivation.config import DeriveConfig
from tests import tiny

CANDIDATES = tiny.candidates("attention", "dense", "identity")


def cost(layout: Layout) -> float:
    """10, 5 for attention, an eighth of d_ffn for dense."""
    return 10.0 + sum(
        5.0 if slot.kind == "attention" else getattr(slot, "d_ffn", 0) / 8 for slot in layout
    )


def matching(
    chosen: str, count: int = 1, measured: Callable[[Layout], float] = cost, **given: Any
) -> Matching:
    layout = parse_layout(chosen, CANDIDATES)
    flops = LayoutCost("flops", {"attention": 5.0, "dense": 2.0, "identity": 0.0}, 10.0)
    request = Request(DeriveConfig(), given.get("names", CANDIDATES), len(layout), flops)

    def shares(layouts: Sequence[Layout]) -> list[float]:
        return [measured(one) / measured(layout) for one in layouts]

    taken = frozenset({network_of(layout, None), *given.get("taken", ())})
    predicted = given.get("predicted", cost)
    return Matching(
        request, layout, taken, count, "flops", lambda one: predicted(one) / cost(layout), shares
    )


def letters(baselines: Sequence[Baseline]) -> list[str]:
    return [layout_letters(one.layout).replace(" ", "") for one in baselines]


def test_random_ones_are_other_networks_of_equal_cost() -> None:
    asked = matching("adaid", 5)
    baselines = BASELINES["random"](asked)
    assert [one.name for one in baselines] == [f"random-{n}" for n in range(len(baselines))]
    assert len(baselines) == 5
    networks = {network_of(one.layout, None) for one in baselines} | asked.taken
    assert len(networks) == 6
    assert all(abs(cost(one.layout) / cost(asked.chosen) - 1) <= TOLERANCE for one in baselines)
    assert baselines == BASELINES["random"](matching("adaid", 5))


@pytest.mark.parametrize("kind", BASELINES)
def test_every_baseline_knows_its_share_of_the_chosen_layouts_cost(kind: str) -> None:
    wide = tiny.candidates("attention", {"kind": "dense", "d_ffn": 160}, "identity")
    is_narrow = kind == "interleaved_narrow"
    asked = matching(
        "adadai" if is_narrow else "adddii", 3, names=wide if is_narrow else CANDIDATES
    )
    baselines = BASELINES[kind](asked)
    assert baselines
    for one in baselines:
        assert one.share == pytest.approx(cost(one.layout) / cost(asked.chosen))
        # What is cut: 17 of 21, where a slot more has 22; 28 of 29, where 8 more width has 31.
        assert is_equal(one.share) is (kind in ("random", "permuted"))


def test_a_random_one_that_costs_more_when_it_is_measured_is_dropped() -> None:
    def dearer(layout: Layout) -> float:
        return cost(layout) * (1.1 if layout_letters(layout).startswith("d") else 1.0)

    baselines = BASELINES["random"](matching("adaid", 3, dearer))
    assert len(baselines) == 3
    assert not any(text.startswith("d") for text in letters(baselines))


def test_where_few_have_the_cost_all_are_looked_at() -> None:
    assert letters(BASELINES["random"](matching("aaaaai", 1))) != []
    with pytest.raises(NoBaseline, match="no other network within 3% of the chosen layout's flops"):
        BASELINES["random"](matching("aaaaa"))


def test_permuted_ones_have_the_same_blocks_in_another_order() -> None:
    baselines = BASELINES["permuted"](matching("aaddi", 5))
    assert len({network_of(one.layout, None) for one in baselines}) == 5
    assert all(sorted(text) == sorted("aaddi") for text in letters(baselines))
    assert all(text.replace("i", "") != "aadd" for text in letters(baselines))
    with pytest.raises(NoBaseline, match="no permutation"):
        BASELINES["permuted"](matching("aaai"))


@pytest.mark.parametrize(
    ("chosen", "slots"), [("adadai", 5), ("adadii", 4), ("adaiii", 3), ("dddiii", 1), ("aiiiii", 1)]
)
def test_interleaved_is_cut_to_the_most_slots_of_the_cost(chosen: str, slots: int) -> None:
    (baseline,) = BASELINES["interleaved_short"](matching(chosen))
    assert letters([baseline]) == ["adadad"[:slots]]
    assert baseline.name == f"interleaved-{slots}"


def test_nothing_is_cut_where_interleaved_costs_no_more() -> None:
    with pytest.raises(NoBaseline, match=r"interleaved costs 1\.000x .* so nothing is cut"):
        BASELINES["interleaved_short"](matching("aaaddd"))
    with pytest.raises(NoBaseline, match="interleaved_short: there is no other network"):
        BASELINES["interleaved_short"](matching("iiiiii"))


def test_interleaved_is_made_as_narrow_as_the_cost_asks() -> None:
    wide = tiny.candidates("attention", {"kind": "dense", "d_ffn": 160}, "identity")
    asked = matching("adadai", names=wide)
    (baseline,) = BASELINES["interleaved_narrow"](asked)
    (width,) = set(dense_widths(baseline.layout))
    assert [slot.kind for slot in baseline.layout] == ["attention", "dense"] * 3
    assert cost(baseline.layout) <= (1 + TOLERANCE) * cost(asked.chosen)
    wider = with_width(baseline.layout, (width + 8) / width)
    assert cost(wider) > (1 + TOLERANCE) * cost(asked.chosen)
    assert baseline.name == f"interleaved-ffn{width}"
    assert {slot.label for slot in baseline.layout} == {"attention", f"dense_{width}"}


def test_permuted_ones_of_shared_weights_have_as_many_parameters() -> None:
    asked = matching("adad", 20)
    parameters = LayoutCost("parameters", {"attention": 7.0, "dense": 2.0, "identity": 0.0}, 1.0, 2)
    tied = replace(
        asked,
        request=replace(asked.request, tie_blocks=2),
        taken=frozenset({network_of(asked.chosen, 2)}),
        cost="parameters",
        predicted=lambda layout: parameters(layout) / parameters(asked.chosen),
    )
    assert letters(BASELINES["permuted"](tied)) == ["dada"]
    both = frozenset({*tied.taken, network_of(parse_layout("dada", CANDIDATES), 2)})
    with pytest.raises(NoBaseline, match="no permutation"):
        BASELINES["permuted"](replace(tied, taken=both))
