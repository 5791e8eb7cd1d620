"""Kappa against Fleiss' own example and against pairs counted one by one."""

import itertools

import numpy as np
import pytest

from nas.agreement import agreement, fleiss_kappa

# Fleiss (1971) as it stands in textbooks: 10 subjects, 14 raters, 5 categories; kappa 0.210.
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip


def test_kappa_is_that_of_the_textbook() -> None:
    assert fleiss_kappa(np.array(FLEISS)) == pytest.approx(0.2099, abs=5e-5)


def test_two_searches_by_hand() -> None:
    # Alike in 3 of 4 slots; candidate 0 has 5 of 8 choices, candidate 1 has 3.
    found = agreement([4, 9], np.array([[0, 0, 1, 0], [0, 0, 1, 1]]))
    by_chance = (5 / 8) ** 2 + (3 / 8) ** 2
    assert found.kappa == pytest.approx((0.75 - by_chance) / (1 - by_chance), abs=1e-6)
    assert found.slots == (1, 1, 1, 0)
    assert found.searches == (4, 9)


def test_pairs_of_a_slot_are_counted() -> None:
    choice_RL = np.random.default_rng(0).integers(3, size=(5, 7))
    found = agreement(range(5), choice_RL)
    for slot in range(7):
        pairs = itertools.combinations(choice_RL[:, slot], 2)
        assert found.slots[slot] == pytest.approx(np.mean([a == b for a, b in pairs]), abs=1e-6)


def test_full_agreement_is_1_chance_is_0_and_one_candidate_everywhere_is_nothing() -> None:
    same = agreement([0, 1, 2], np.array([[0, 1, 2, 1]] * 3))
    assert same.kappa == 1
    assert same.interval == (1, 1)
    one = agreement([0, 1], np.zeros((2, 5), dtype=np.int64))
    assert one.kappa is None
    assert one.interval is None
    assert one.slots == (1,) * 5
    chance = agreement(range(40), np.random.default_rng(0).integers(3, size=(40, 60)))
    assert chance.kappa is not None
    assert chance.interval is not None
    assert abs(chance.kappa) < 0.02


def test_the_interval_is_the_bootstraps() -> None:
    choice_RL = np.random.default_rng(2).integers(2, size=(3, 20))
    choice_RL[1, :12] = choice_RL[0, :12]
    found = agreement([0, 1, 2], choice_RL)
    generator = np.random.default_rng(5)
    kappas = []
    for _ in range(4000):
        counts_LC = (choice_RL[:, generator.integers(20, size=20), None] == np.arange(2)).sum(
            axis=0
        )
        kappas.append(fleiss_kappa(counts_LC))
    assert found.interval == pytest.approx(np.quantile(kappas, [0.025, 0.975]), abs=0.03)
    assert found.interval is not None
    assert found.kappa is not None
    assert found.interval[0] < found.kappa < found.interval[1]


def test_two_slots_have_no_interval() -> None:
    assert agreement([0, 1], np.array([[0, 1], [1, 1]])).interval is None
