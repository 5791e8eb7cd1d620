"""Optimal cutoffs against brute force and the quadratic dynamic programme; Monge; ties.

V vocabulary   J tails
"""

import random
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.cutoffs import clusters
from benchmarks.optimal_cutoffs import ClusterCosts, CostConstants, optimal_cutoffs

# Powers of two: with counts that sum to one, every cost is exact and ties are true ties.
EXACT = CostConstants(launch_s=8.0, multiply_add_s=1.0, logit_s=2.0, threshold=0.0)


def by_hand(
    count_V: list[float], cutoffs: tuple[int, ...], d_model: int, widths: tuple[int, ...],
    tokens: int, known: CostConstants, head_width: int | None = None,
) -> float:  # fmt: skip
    """The cost as the module's docstring writes it, one cluster after the other."""
    total, ends = sum(count_V), (*cutoffs, len(count_V))
    words = ends[0] + len(widths)
    cost = known.launch_s + known.logit_s * tokens * words
    cost += known.multiply_add_s * max(known.threshold, tokens * words * (head_width or d_model))
    cost += known.multiply_add_s * tokens * d_model * (head_width or 0)
    for width, (low, high) in zip(widths, pairwise(ends), strict=True):
        rows = tokens * sum(count_V[low:high]) / total
        n = high - low
        cost += known.launch_s + known.logit_s * rows * n
        cost += known.multiply_add_s * max(known.threshold, rows * n * width)
        cost += known.multiply_add_s * rows * d_model * width
    return cost


def brute_force(
    count_V: list[float], *, d_model: int, widths: tuple[int, ...], tokens: int,
    constants: CostConstants, least_head_mass: float, head_width: int | None = None,
) -> tuple[float, tuple[int, ...]]:  # fmt: skip
    """The least cost over all sets of cutoffs, and the first set that has it in our order."""
    count_V = sorted(count_V, reverse=True)
    least = least_head_mass * sum(count_V)
    found = [
        (by_hand(count_V, cutoffs, d_model, widths, tokens, constants, head_width), cutoffs[::-1])
        for cutoffs in combinations(range(1, len(count_V)), len(widths))
        if sum(count_V[: cutoffs[0]]) >= least - 1e-9
    ]
    cost, reverse = min(found)
    return cost, reverse[::-1]


def random_case(rng: random.Random) -> tuple[list[float], dict[str, Any]]:
    tails = rng.randint(1, 4)
    count_V = [float(rng.randint(0, 60)) for _ in range(rng.randint(tails + 5, 14))]
    count_V[0] += 120  # so that a head of few words can hold half
    if rng.random() < 0.3:
        count_V = [count / 97 for count in count_V]
    options = {
        "d_model": rng.choice([4, 8, 16]),
        "widths": tuple(rng.choice([1, 2, 4, 8]) for _ in range(tails)),
        "tokens": rng.choice([1, 16, 100]),
        "constants": CostConstants(
            launch_s=rng.choice([0.0, 5.0, 500.0]),
            multiply_add_s=rng.choice([0.5, 1.0]),
            logit_s=rng.choice([0.0, 3.0]),
            threshold=rng.choice([0.0, 40.0, 900.0]),
        ),
        "least_head_mass": rng.choice([0.0, 0.0, 0.3, 0.5]),
        "head_width": rng.choice([None, None, 2]),
    }
    return count_V, options


@pytest.mark.parametrize("seed", range(150))
def test_it_is_what_brute_force_finds(seed: int) -> None:
    rng = random.Random(seed)
    count_V, options = random_case(rng)
    ranked = sorted(count_V, reverse=True)
    found = optimal_cutoffs(ranked, **options)
    least, _ = brute_force(count_V, **options)
    known = {key: options[key] for key in ("d_model", "widths", "tokens", "head_width")}
    assert by_hand(ranked, found, **known, known=options["constants"]) == pytest.approx(
        least, rel=1e-12
    )
    costs = ClusterCosts(np.array(ranked), **known, constants=options["constants"])
    assert sum(clusters(costs, found)) == pytest.approx(least, rel=1e-12)
    assert all(low < high for low, high in pairwise((0, *found, len(count_V))))
    assert sum(ranked[: found[0]]) >= options["least_head_mass"] * sum(ranked) - 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_ties_go_to_the_smallest_last_cutoff_then_the_one_before(seed: int) -> None:
    rng = random.Random(seed)
    count_V = [1.0] * 12
    for _ in range(4):
        count_V[rng.randrange(12)] += 1.0
    options: dict[str, Any] = {
        "d_model": 2, "widths": (1, 1, 1), "tokens": 16, "least_head_mass": 0.0,
        "constants": CostConstants(8.0, 1.0, 0.0, 512.0),
    }  # fmt: skip
    ranked = sorted(count_V, reverse=True)
    assert optimal_cutoffs(ranked, **options) == brute_force(count_V, **options)[1]


def test_the_head_holds_the_mass_asked_for_and_not_a_word_more_than_pays() -> None:
    """Without it the cheapest head for plain multiply-adds is a handful of words."""
    count_V = 1 / np.arange(1, 12001)
    cheap = CostConstants(0.0, 1.0, 0.0, 0.0)
    options: dict[str, Any] = {"d_model": 512, "widths": (128, 32, 8), "tokens": 1}
    free = optimal_cutoffs(count_V, **options, constants=cheap, least_head_mass=0.0)
    assert free[0] < 10
    held = optimal_cutoffs(count_V, **options, constants=cheap, least_head_mass=0.5)
    mass_W = np.cumsum(count_V) / count_V.sum()
    assert mass_W[held[0] - 1] >= 0.5 > mass_W[held[0] - 2]


def test_a_half_is_held_by_half_of_equal_words() -> None:
    """Half of twenty tenths is not quite half of their sum; the constraint allows for that."""
    options: dict[str, Any] = {"d_model": 8, "widths": (1,), "tokens": 1, "constants": EXACT}
    options["least_head_mass"] = 0.5
    assert optimal_cutoffs([0.1] * 20, **options) == (10,)


def test_too_few_words_are_refused() -> None:
    first = "2 words, of which the first 1 hold 0.5 of the tokens"
    for count_V, said in (([9, 1], first), ([1] * 5, "use fewer clusters")):
        with pytest.raises(ValueError, match=said):
            optimal_cutoffs(count_V, d_model=8, widths=(4, 2, 1), tokens=4, least_head_mass=0.5)
