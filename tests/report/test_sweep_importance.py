"""Importances find what was planted, and little where nothing was."""

import numpy as np
import pytest

from report.sweep.importance import groups, importances
from report.sweep.trials import parse_rows


def rows_of(sweeper, params, values):
    pairs = enumerate(zip(params, values, strict=True))
    return parse_rows([sweeper.row(n, params=p, values=[float(v)]) for n, (p, v) in pairs])


def slow_share(group_N, value_N):
    """The same by definition, group by group, with ranks by counting."""
    rank_N = np.array(
        [sum(v < w for v in value_N) + sum(v == w for v in value_N) / 2 for w in value_N]
    )
    within = sum(
        sum((rank_N[group_N == group] - rank_N[group_N == group].mean()) ** 2)
        for group in set(group_N.tolist())
    )
    free = len(value_N) - len(set(group_N.tolist()))
    return max(0.0, 1 - (within / free) / rank_N.var(ddof=1))


@pytest.mark.parametrize("seed", range(5))
def test_a_share_is_what_the_definition_gives(sweeper, seed):
    generator = np.random.default_rng(seed)
    choice_N = generator.integers(0, 3, 40)
    value_N = (0.7 * choice_N + generator.normal(size=40)).round(1)  # with ties
    params = [{"k": "abc"[c], "n": n} for n, c in enumerate(choice_N)]
    (found,) = (x for x in importances(rows_of(sweeper, params, value_N), 0) if x.key == "k")
    assert found.share == pytest.approx(slow_share(choice_N, value_N), abs=1e-12)
    assert (found.trials, found.conditional) == (40, False)


def test_what_was_planted_comes_first_and_the_rest_is_as_chance_has_it(sweeper):
    generator = np.random.default_rng(0)
    planted_N, other_N = generator.uniform(size=(2, 60))
    value_N = (planted_N - 0.5) ** 2 + 0.01 * generator.normal(size=60)
    value_N[7] = 1e6  # a trial that went wrong
    params = [{"a": float(o), "b": float(p)} for o, p in zip(other_N, planted_N, strict=True)]
    first, second = importances(rows_of(sweeper, params, value_N), 0)
    assert first.key == "b"
    assert first.share > 0.7
    assert first.share > first.chance
    assert second.share < 0.2


def test_a_setting_that_decides_all_explains_all(sweeper):
    params = [{"k": n % 3, "n": n} for n in range(30)]
    found, _ = importances(rows_of(sweeper, params, [p["k"] for p in params]), 0)
    assert found.key == "k"
    assert found.share == pytest.approx(1.0)
    assert found.chance < 0.4


def test_chance_is_rarely_passed(sweeper):
    generator = np.random.default_rng(3)
    passed = 0
    for _ in range(60):
        params = [{"k": float(x)} for x in generator.uniform(size=20)]
        (found,) = importances(rows_of(sweeper, params, generator.normal(size=20)), 0)
        passed += found.share > found.chance
    assert passed <= 9


def test_trials_of_equal_settings_are_no_more_evidence_than_one(sweeper):
    """A sampler repeats the points of a small space; each repetition has the value of the first."""
    generator = np.random.default_rng(0)
    passed = bars = 0
    for _ in range(60):
        noise = generator.normal(size=(3, 8))
        points = generator.integers(0, (3, 8), size=(48, 2))
        params = [{"a": int(a), "b": int(b)} for a, b in points]
        found = importances(rows_of(sweeper, params, [noise[a, b] for a, b in points]), 0)
        different = len({(a, b) for a, b in points.tolist()})
        assert {one.trials for one in found} == {different}
        passed += sum(one.share > one.chance for one in found)
        bars += len(found)
    assert bars == 120
    assert passed <= 12


def test_a_conditional_setting_counts_where_it_is_active(sweeper):
    generator = np.random.default_rng(0)
    params = [{"kind": "x", "only": n % 2} if n < 24 else {"kind": "y"} for n in range(40)]
    value_N = np.where(np.arange(40) < 24, 5.0 + np.arange(40) % 2, 50.0)
    value_N = value_N + 0.1 * generator.normal(size=40)
    found = {one.key: one for one in importances(rows_of(sweeper, params, value_N), 0)}
    assert (found["only"].trials, found["only"].conditional) == (24, True)
    assert (found["kind"].trials, found["kind"].conditional) == (40, False)
    assert found["only"].share > 0.7


def test_too_few_trials_and_settings_that_never_change_tell_nothing(sweeper):
    params = [{"k": n % 3, "same": 1} for n in range(10)]
    values = list(range(10))
    assert importances(rows_of(sweeper, params[:9], values[:9]), 0) == []
    for row in params[5:]:
        row["few"] = row["k"]
    found = {one.key: one for one in importances(rows_of(sweeper, params, values), 0)}
    assert found["k"].share is not None
    assert found["same"].share is found["few"].share is None
    assert list(found) == ["k", "few", "same"]
    same = importances(rows_of(sweeper, [{"k": n} for n in values], [1.0] * 10), 0)
    assert [one.share for one in same] == [None]


def test_each_objective_has_its_own(sweeper):
    rows = parse_rows(
        [sweeper.row(n, params={"a": n % 2, "b": n // 2 % 2, "n": n}, values=[n % 2, n // 2 % 2])
         for n in range(24)]
    )  # fmt: skip
    assert [importances(rows, index)[0].key for index in (0, 1)] == ["a", "b"]


def test_numbers_of_many_values_fall_into_bins_of_equal_size():
    group_N = groups([float(n) for n in range(40)])
    assert np.bincount(group_N).tolist() == [8, 8, 8, 8, 8]
    assert (np.diff(group_N) >= 0).all()
    assert groups([4, 8, 6, 4]).tolist() == [0, 2, 1, 0]
    assert len(set(groups([True, False, None, "x", 1]).tolist())) == 5
    assert set(groups([1.0] * 30 + [float(n) for n in range(2, 9)]).tolist()) <= {0, 1, 2, 3, 4}
