"""Networks in order of score within budgets, against brute force over all layouts."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nas.costs.budget import LayoutCost, Limit
from nas.derivation.base import Choice, Networks
from nas.derivation.ranking import STEP, networks_by_score
from tests import tiny

LABELS = ("attention", "dense", "identity")
CANDIDATES = tiny.candidates(*LABELS)


def networks(tie_blocks: int | None = None) -> Networks:
    return Networks(CANDIDATES, tie_blocks)


def random_limits(slots: int, count: int, seed: int, tie_blocks: int | None = None) -> list[Limit]:
    """Budgets over random costs, each of which most layouts keep."""
    generator = np.random.default_rng([seed, 1])
    limits = list[Limit]()
    for name in range(count):
        cost_C = generator.uniform(0, 1, size=3)
        cost = LayoutCost(
            str(name),
            dict(zip(LABELS, cost_C.tolist(), strict=True)),
            generator.uniform(),
            tie_blocks,
        )
        layouts = generator.integers(3, size=(201, slots))
        costs = [cost(networks().layout(tuple(row))) for row in layouts.tolist()]
        limits.append(Limit(cost, float(np.quantile(costs, 0.7))))
    return limits


def brute_force(
    score_LC: np.ndarray, of: Networks, limits: Sequence[Limit] = ()
) -> list[tuple[float, Choice]]:
    """All networks that keep the limits, in order; of equal layouts the lower indices first."""
    whole_LC = [[round(float(value) / STEP) for value in score_C] for score_C in score_LC]
    every = []
    for choice in itertools.product(range(3), repeat=len(score_LC)):
        layout = of.layout(choice)
        if all(limit.cost(layout) <= limit.most * (1 + 1e-9) for limit in limits):
            total = sum(whole_C[k] for whole_C, k in zip(whole_LC, choice, strict=True))
            every.append((total, choice))
    every.sort(key=lambda entry: (-entry[0], entry[1]))
    known = set[Any]()
    ranked = []
    for total, choice in every:
        if of.of(choice) not in known:
            known.add(of.of(choice))
            ranked.append((total * STEP, choice))
    return ranked


@pytest.mark.parametrize("seed", range(12))
def test_networks_are_those_of_brute_force_over_3_to_the_8_with_three_budgets(seed: int) -> None:
    score_LC = np.random.default_rng(seed).normal(size=(8, 3))
    limits = random_limits(8, 3, seed)
    every = brute_force(score_LC, networks(), limits)
    ranked = list(itertools.islice(networks_by_score(score_LC, networks(), limits), 40))
    assert ranked == every[:40]
    assert ranked or not every


@pytest.mark.parametrize("tie_blocks", [None, 1, 2, 3])
def test_every_network_comes_once_also_where_slots_share_weights(tie_blocks: int | None) -> None:
    of = networks(tie_blocks)
    for seed in range(5):
        score_LC = np.random.default_rng(seed).normal(size=(5, 3))
        for limits in ([], random_limits(5, 2, seed, tie_blocks)):
            assert list(networks_by_score(score_LC, of, limits)) == brute_force(
                score_LC, of, limits
            )


def test_of_equal_layouts_those_with_lower_indices_come_first() -> None:
    generator = np.random.default_rng(0)
    row_C = generator.normal(size=3)
    for score_LC in (
        np.zeros((6, 3)),
        np.tile(row_C, (6, 1)),
        np.stack([generator.permutation(row_C) for _ in range(6)]),
        generator.integers(3, size=(6, 3)).astype(float),
    ):
        limits = random_limits(6, 1, 3)
        for some in ([], limits):
            ranked = list(networks_by_score(score_LC, networks(), some))
            assert ranked == brute_force(score_LC, networks(), some)


def test_the_best_100_of_3_to_the_32_layouts_come_in_order_within_the_limits() -> None:
    for seed, scale in enumerate((0.0, 0.01, 1.0, 10.0)):
        score_LC = np.random.default_rng(seed).normal(scale=scale, size=(32, 3))
        limits = random_limits(32, 3, seed)
        ranked = [*itertools.islice(networks_by_score(score_LC, networks(), limits), 100)]
        scores, chosen = ([one[part] for one in ranked] for part in (0, 1))
        assert len(ranked) == 100
        assert scores == sorted(scores, reverse=True)
        for choice in chosen:
            assert all(limit.holds(networks().layout(choice)) for limit in limits)


def test_where_no_layout_keeps_the_budgets_there_is_none() -> None:
    cost = LayoutCost("flops", {"attention": 3.0, "dense": 2.0, "identity": 1.0}, 1.0)
    score_LC = np.zeros((4, 3))
    assert list(networks_by_score(score_LC, networks(), [Limit(cost, 4.9)])) == []
    (only,) = networks_by_score(score_LC, networks(), [Limit(cost, 5.0)])
    assert only[1] == (2, 2, 2, 2)


def test_too_many_candidates_of_different_costs_are_refused() -> None:
    wide = [{"kind": "dense", "label": f"dense_{n}", "d_ffn": n} for n in range(1, 9)]
    candidates = tiny.candidates(*wide)
    cost = LayoutCost("flops", {one.label: float(n) for n, one in enumerate(candidates)})
    with pytest.raises(ValueError, match=r"8 candidates of different costs in 64 blocks make"):
        next(networks_by_score(np.zeros((64, 8)), Networks(candidates, None), [Limit(cost, 9.0)]))


def test_candidates_that_compute_the_same_and_are_timed_apart_hide_no_network() -> None:
    """The likelier of two equal beginnings may be the dearer one, and leave less room."""
    twins = tiny.candidates(
        "attention", "dense", {"kind": "dense", "label": "again", "d_ffn": 16}, d_ffn=16
    )
    of = Networks(twins, None)
    assert of.options_C[1] == of.options_C[2]
    cost = LayoutCost("latency", {"attention": 5.0, "dense": 2.0, "again": 1.0})
    limit = Limit(cost, 11.5)  # of two attentions and the cheaper twin
    for seed in range(20):
        score_LC = np.random.default_rng(seed).normal(size=(3, 3))
        ranked = list(networks_by_score(score_LC, of, [limit]))
        assert ranked == brute_force(score_LC, of, [limit])
        assert len(ranked) > 2
