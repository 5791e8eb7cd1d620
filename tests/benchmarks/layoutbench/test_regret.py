"""Regret, random search and the noise ceiling on tables whose answers are known."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.layoutbench.regret import (
    RandomSearch,
    difference,
    noise_of,
    random_search,
    regret_of,
)
from benchmarks.layoutbench.table import LayoutTable, Row, all_layouts


def table_of(noise: float = 0.0, slots: int = 3, alphabet: str = "ad") -> LayoutTable:
    """Each attention slot is worth 0.1 nats; every row of two seeds has its own noise."""
    generator = np.random.default_rng(0)
    rows = []
    for layout, seed in itertools.product(all_layouts(alphabet, slots), range(2)):
        valid, test = 4.0 - 0.1 * layout.count("a") + noise * generator.standard_normal(2)
        rows.append(Row(layout, seed, 20.0, valid, test))
    return LayoutTable(tuple(rows))


def test_a_search_that_chose_a_twin_finds_its_row() -> None:
    """Of three slots there are 27 layouts and 1 + 2 + 4 + 8 networks."""
    table = table_of(alphabet="adi")
    assert len(table.layouts) == 15
    assert [table.layout_of(layout) for layout in ("iad", "aid", "adi", "dia")] == [
        "adi", "adi", "adi", "dai",
    ]  # fmt: skip
    random = random_search(table, 2, replays=20, seed=0)
    chosen, first = ["iad", "adi", "iii"], ["adi", "adi", "iii"]
    assert difference(table, chosen, random) == difference(table, first, random)
    with pytest.raises(ValueError, match="layout 'axi' is not among the table's"):
        regret_of(table, ["axi"])
    with pytest.raises(AssertionError, match="a network twice"):
        LayoutTable((*table.rows, Row("iad", 0, 20.0, 4.0, 4.0)))


def test_regret_is_the_distance_to_the_best() -> None:
    found = regret_of(table_of(), ["aaa", "add"])
    assert found.each == pytest.approx((0.0, 0.2))
    assert found.mean == pytest.approx(0.1)


def test_random_search_without_noise_has_its_expected_regret() -> None:
    table = table_of()
    assert random_search(table, 8, replays=50, seed=0).regret_R == pytest.approx(np.zeros(50))
    worth = {layout: 0.1 * layout.count("d") for layout in table.layouts}
    for trainings in (1, 2, 3):
        drawn = itertools.combinations(worth.values(), trainings)
        expected = np.mean([min(values) for values in drawn])
        found = random_search(table, trainings, replays=4000, seed=1)
        error = found.regret_R.std() / math.sqrt(4000)
        assert found.mean == pytest.approx(expected, abs=4 * error)
        assert found.share_L @ [*worth.values()] == pytest.approx(found.mean)


def test_random_search_chooses_on_validation_and_counts_the_other_seeds_test() -> None:
    nats = {"a": [(1.0, 5.0), (1.0, 7.0)], "d": [(2.0, 3.0), (2.0, 4.0)]}
    rows = [Row(one, seed, 1.0, *of[seed]) for one, of in nats.items() for seed in range(2)]
    table = LayoutTable(tuple(rows))
    assert regret_of(table, ["a"]).each == pytest.approx((2.5,))
    found = random_search(table, 2, replays=100, seed=0)
    assert found.share_L.tolist() == [1.0, 0.0]
    assert set(found.regret_R.round(6)) == {5.0 - 3.5, 7.0 - 3.5}


def test_the_noise_of_a_table() -> None:
    quiet, loud = noise_of(table_of()), noise_of(table_of(0.05, slots=5))
    assert quiet.deviation == pytest.approx(0, abs=1e-8)
    assert (quiet.agreement, quiet.regret) == (pytest.approx(1.0), 0.0)
    assert loud.deviation == pytest.approx(0.05, rel=0.3)
    assert loud.agreement < loud.ceiling < 1.0


@pytest.mark.slow
def test_the_interval_covers_where_all_searches_choose_one_layout() -> None:
    """Searches that always choose a layout worth what random search finds: no verdict in 95%."""
    generator, wrong, tables = np.random.default_rng(5), 0, 300
    layouts = all_layouts("ad", 4)
    true_L = np.sort(generator.normal(4.0, 0.05, size=len(layouts)))
    for _ in range(tables):
        rows = []
        for layout, seed in itertools.product(range(len(layouts)), range(2)):
            valid, test = true_L[layout] + 0.02 * generator.standard_normal(2)
            rows.append(Row(layouts[layout], seed, 1.0, valid, test))
        table = LayoutTable(tuple(rows))
        random = random_search(table, 4, replays=200, seed=0)
        worth = float(random.share_L @ true_L)
        chosen = layouts[int(np.abs(true_L - worth).argmin())]
        off = true_L[layouts.index(chosen)] - worth
        found = difference(table, [chosen] * 5, random)
        wrong += abs(found.nats - off) > found.half_width
    assert wrong <= 0.05 * tables + 2 * math.sqrt(0.05 * 0.95 * tables)
    assert found.half_width < 0.1


def test_spread_replays_and_rows_add_up() -> None:
    table = table_of(0.01)
    random = RandomSearch(np.array([0.1, 0.2, 0.3, 0.2]), np.full(8, 1 / 8))
    found = difference(table, ["aaa", "add"], random)
    regrets = regret_of(table, ["aaa", "add"])
    noise = table.pooled_deviation("test") ** 2 / 2
    rows = noise * (2 * (1 / 2 - 1 / 8) ** 2 + 6 / 64)
    variance = np.var(regrets.each, ddof=1) / 2 + 0.005 / 4 + rows
    assert found.nats == pytest.approx(regrets.mean - 0.2)
    assert found.half_width == pytest.approx(12.706 * math.sqrt(variance))
