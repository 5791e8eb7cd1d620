"""Kappa against Fleiss' own example and against pairs counted one by one."""

import itertools

import numpy as np
import pytest

from benchmarks.kappa_coverage import coverage, probabilities
from nas.statistics.agreement import agreement, fleiss_kappa, interval, shuffled

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
    assert found.blocks == (1, 1, 1, 0)
    assert found.searches == (4, 9)


def test_full_agreement_is_1_and_one_candidate_everywhere_is_nothing() -> None:
    same = agreement([0, 1, 2], np.array([[0, 1, 2, 1, 0, 2]] * 3))
    assert same.kappa == 1
    assert same.p_by_chance < 0.01
    assert same.interval is not None, "agreement of so few slots may be luck: not [1, 1]"
    assert same.interval[0] < 0.6
    assert same.interval[1] == 1
    one = agreement([0, 1], np.zeros((2, 5), dtype=np.int64))
    assert (one.kappa, one.interval, one.p_by_chance) == (None, None, None)
    assert one.blocks == (1,) * 5


def test_p_is_the_part_of_all_permutations_that_agree_as_much() -> None:
    choice_RL = np.array([[0, 1, 2, 0, 1], [0, 1, 1, 0, 2], [2, 1, 0, 0, 1]])

    def alike(rows: tuple[tuple[int, ...], ...]) -> int:
        pairs = itertools.combinations(rows, 2)
        return sum(a == b for one, two in pairs for a, b in zip(one, two, strict=True))

    orders = [list(itertools.permutations(row)) for row in choice_RL[1:].tolist()]
    first = tuple(choice_RL[0].tolist())
    every = [alike((first, *rest)) for rest in itertools.product(*orders)]
    wanted = np.mean(np.array(every) >= alike(tuple(map(tuple, choice_RL.tolist()))))
    found = agreement([0, 1, 2], choice_RL).p_by_chance
    assert found == pytest.approx(wanted, abs=4 * np.sqrt(wanted * (1 - wanted) / 5000))
    kappas = shuffled(choice_RL, 5000)
    by_chance = ((np.bincount(choice_RL.ravel()) / 15) ** 2).sum()
    kappa_N = (np.array(every) / 15 - by_chance) / (1 - by_chance)
    assert kappas.mean() == pytest.approx(kappa_N.mean(), abs=0.02)
    assert kappas.std() == pytest.approx(kappa_N.std(), rel=0.05)


def test_searches_that_have_nothing_in_common_are_seldom_called_alike() -> None:
    generator = np.random.default_rng(0)
    p_N = []
    for _ in range(400):
        choice_RL = generator.integers(3, size=(3, 6))
        kappas = shuffled(choice_RL, 199)
        kappa = fleiss_kappa((choice_RL[:, :, None] == np.arange(3)).sum(0))
        p_N.append((1 + (kappas >= kappa - 1e-9).sum()) / 200)
    assert np.mean(np.array(p_N) <= 0.05) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)
    assert np.mean(np.array(p_N) <= 0.5) > 0.35


def test_the_interval_is_the_jackknifes_or_that_of_chance() -> None:
    choice_RL = np.random.default_rng(2).integers(2, size=(3, 12))
    choice_RL[1, :8] = choice_RL[0, :8]
    counts_LC = (choice_RL[:, :, None] == np.arange(2)).sum(0)
    kappa = fleiss_kappa(counts_LC)
    kept = [[slot for slot in range(12) if slot != left] for left in range(12)]
    left_L = [fleiss_kappa(counts_LC[rows]) for rows in kept]
    error = np.std(np.array(left_L, dtype=float)) * np.sqrt(12 * 12 / 11)
    half = 2.201 * error
    assert interval(counts_LC, 0.0) == pytest.approx((kappa - half, min(1, kappa + half)), abs=1e-6)
    assert interval(counts_LC, 0.3) == pytest.approx((kappa - 0.6603, kappa + 0.6603), abs=1e-5)
    assert interval(counts_LC, 9.0) == (-1, 1)


@pytest.mark.parametrize("searches", [2, 5])
@pytest.mark.parametrize("slots", [6, 32])
def test_the_interval_covers_where_slots_have_fixed_probabilities(
    searches: int, slots: int
) -> None:
    for story in ("chance", "any", "90%"):
        p_LC = probabilities(story, slots, 3)
        part, there = coverage(p_LC, searches, tables=100)
        assert part >= 0.93, story
        assert there > 0.5, story


def test_where_there_is_too_little_there_is_no_interval() -> None:
    assert agreement([0, 1], np.array([[0, 1, 0, 1, 0]] * 2)).interval is None
    assert agreement([0, 1], np.array([[0, 1, 0, 1, 0, 1]] * 2)).interval is not None
    assert agreement([0, 1], np.array([[0, 1, 0, 1, 0, 0]] * 2)).interval is None
