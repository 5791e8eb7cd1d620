"""Regret, random search and the noise ceiling on tables whose answers are known."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from nas.layout_table import LayoutTable, Row, all_layouts, as_csv, read_table
from nas.regret import kendall_tau, noise_ceiling, random_search, regret_of


def table_of(noise: float = 0.0, slots: int = 3, seeds: int = 2) -> LayoutTable:
    """Each attention slot is worth 0.1 nats; every row has its own noise."""
    generator = np.random.default_rng(0)
    rows = []
    for layout, seed in itertools.product(all_layouts("ad", slots), range(seeds)):
        nats = 4.0 - 0.1 * layout.count("a")
        valid, test = nats + noise * generator.standard_normal(2)
        rows.append(Row(layout, seed, 10, 20.0, valid, test))
    return LayoutTable(tuple(rows))


def test_all_layouts_of_a_space() -> None:
    assert all_layouts("da", 2) == ["aa", "ad", "da", "dd"]
    assert table_of().missing("ad") == []
    short = LayoutTable(table_of().rows[:-1])
    assert short.missing("ad") == ["ddd"]


def test_regret_is_the_distance_to_the_best() -> None:
    found = regret_of(table_of(), ["aaa", "add"])
    assert found.each == pytest.approx((0.0, 0.2))
    assert found.mean == pytest.approx(0.1)
    assert found.half_width == pytest.approx(12.706 * math.sqrt(0.02) / math.sqrt(2), rel=1e-3)
    with pytest.raises(ValueError, match="'aaaa' is not among the table's, which have 3 slots"):
        regret_of(table_of(), ["aaaa"])


def test_random_search_without_noise_has_its_expected_regret() -> None:
    table = table_of()
    everything = random_search(table, 8, replays=50, seed=0)
    assert everything == pytest.approx(np.zeros(50))
    worth = {layout: 0.1 * layout.count("d") for layout in table.layouts}
    for trainings in (1, 2, 3):
        drawn = itertools.combinations(worth.values(), trainings)
        expected = np.mean([min(values) for values in drawn])
        found = random_search(table, trainings, replays=4000, seed=1)
        assert found.mean() == pytest.approx(expected, abs=4 * found.std() / math.sqrt(4000))


def test_a_lucky_training_is_not_counted_as_a_good_layout() -> None:
    # All layouts are alike: what is chosen lies no lower than any other does.
    generator = np.random.default_rng(3)
    bias = []
    for _ in range(60):
        rows = []
        for layout, seed in itertools.product(all_layouts("ad", 5), range(2)):
            nats = 4.0 + 0.1 * generator.standard_normal()
            rows.append(Row(layout, seed, 1, 1.0, nats, nats))
        table = LayoutTable(tuple(rows))
        best = min(np.mean(v) for v in table.nats("test").values())
        bias.append(random_search(table, 16, replays=50, seed=0).mean() - (4.0 - best))
    assert abs(np.mean(bias)) < 4 * np.std(bias) / math.sqrt(60)
    assert 4 * np.std(bias) / math.sqrt(60) < 0.05  # the luck that would be counted is 0.2


def test_the_noise_ceiling_falls_with_noise() -> None:
    quiet, loud = noise_ceiling(table_of(1e-9)), noise_ceiling(table_of(0.05, slots=5))
    assert quiet.deviation == pytest.approx(0, abs=1e-8)
    assert loud.deviation == pytest.approx(0.05, rel=0.3)
    assert loud.tau < 0.9
    assert noise_ceiling(table_of(0.0)).tau == pytest.approx(1.0)
    assert noise_ceiling(table_of(0.0)).regret == 0.0
    with pytest.raises(ValueError, match="needs 2 seeds or more, the table has 1"):
        noise_ceiling(table_of(seeds=1))


def test_kendalls_tau_is_scipys() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        x, y = generator.integers(0, 6, size=(2, 15)).astype(float)
        assert kendall_tau(x, y) == pytest.approx(scipy.stats.kendalltau(x, y).statistic, abs=1e-12)
    assert math.isnan(kendall_tau(np.ones(4), np.arange(4.0)))


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path, table = tmp_path / "t.csv", table_of(0.1)
    path.write_text(as_csv(table.rows))
    assert read_table(path) == table


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("valid_nats", "nats"), "expected the columns"),
        (("\naaa,0,10", "\naaa,0,ten"), ":2: invalid literal"),
        (("\naaa,0,", "\naaa,1,"), "a row twice"),
        (("\naaa,", "\naaaa,"), "different lengths"),
        (("20.0", "inf"), ":2: a number is not finite"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(as_csv(table_of().rows).replace(*change, 1))
    with pytest.raises(ValueError, match=words):
        read_table(path)
