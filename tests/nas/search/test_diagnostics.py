"""What the guard says of paths whose story is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.search.config import SearchConfig
from nas.search.diagnostics import (
    MOST_PARTS,
    Diagnostics,
    alpha_path,
    diagnose_search,
    directedness,
    warnings_of,
)
from nas.search.plan import SearchPlan

LABELS = ["attention", "dense", "identity"]
NOTHING = [False, False, True]


def straight(
    end_LC: NDArray[np.float64], steps: int = 400, noise: float = 0.0
) -> NDArray[np.float32]:
    """A path from 0 to `end_LC` with noise on every step."""
    generator = np.random.default_rng(0)
    walk = generator.standard_normal((steps, *end_LC.shape)).cumsum(0) * noise
    line = np.linspace(0, 1, steps)[:, None, None] * end_LC
    return (line + walk).astype(np.float32)


def seen(path_NLC: NDArray[np.float32]) -> Diagnostics:
    return diagnose_search(path_NLC, [1.0] * (len(path_NLC) - 1), LABELS, NOTHING)


def ends(*winners: int, lead: float = 3.0) -> NDArray[np.float64]:
    return np.array([[lead if k == winner else 0.0 for k in range(3)] for winner in winners])


def test_a_clear_search_is_not_warned_of() -> None:
    found = seen(straight(ends(0, 1, 0, 1, 2, 0), noise=0.01))
    assert warnings_of(found) == []
    assert found.one_label == "attention"
    assert (found.directed_L > 5).all()


@pytest.mark.parametrize(
    ("winners", "lead", "warning"),
    [
        ((2, 2, 2, 1), 3.0, "identity has 69% of pi (above 60%)"),
        ((0, 0, 0, 0), 6.0, "attention has 100% of pi"),
        ((0, 1, 2), 0.1, "pi hardly moved: its mean margin is 0.03"),
    ],
)
def test_collapse_and_standstill_are_told(
    winners: tuple[int, ...], lead: float, warning: str
) -> None:
    (line,) = warnings_of(seen(straight(ends(*winners, lead=lead))))
    assert line.startswith(f"warning: {warning}")


def test_the_false_alarm_rates_of_the_t_statistic() -> None:
    """A walk passes seldom; a path with as much signal as noise in each part nearly always."""
    generator = np.random.default_rng(2)
    walks = generator.standard_normal((2001, 400, 2)).cumsum(0) * 0.05
    walks -= walks[:1]
    t_L = directedness(walks, [1.0] * 2000)
    assert (t_L > 0).all()
    assert (t_L > 2.5).mean() < 0.05
    drift = np.linspace(0, 1, 2001)[:, None, None] * np.array([1.0, 0.0])
    # One part's gain is as large as its noise: t is about sqrt(MOST_PARTS) = 4.5.
    noise = generator.standard_normal((2001, 400, 2)).cumsum(0) / np.sqrt(2 * 2000 * MOST_PARTS)
    assert (directedness(drift + noise, [1.0] * 2000) > 2.5).mean() > 0.9


def test_few_steps_and_single_candidates_say_nothing_about_direction() -> None:
    walk = np.random.default_rng(0).standard_normal((33, 2, 3)).cumsum(0) * 0.05
    assert not np.isnan(directedness(walk, [1.0] * 32)).any()
    assert np.isnan(directedness(walk[:-1], [1.0] * 31)).all()
    assert np.isnan(directedness(np.zeros((100, 2, 1)), [1.0] * 99)).all()
    alone = diagnose_search(np.zeros((100, 2, 1), dtype=np.float32), [1.0] * 99, ["dense"], [False])
    assert alone.mean_margin == 1.0
    assert (directedness(np.zeros((101, 2, 3)), [1.0] * 100) == 0).all()


def test_t_by_hand() -> None:
    """Over 80 steps of one rate there are 20 parts of 4; the lead is over the others' mean."""
    path_N3 = np.random.default_rng(3).standard_normal((81, 3)).cumsum(0) * 0.03
    path_N3 -= path_N3[0]
    top = path_N3[-1].argmax()
    lead_N = path_N3[:, top] * 1.5 - path_N3.sum(1) / 2
    gains = [lead_N[4 * part + 4] - lead_N[4 * part] for part in range(20)]
    error = np.sqrt(sum((gain - np.mean(gains)) ** 2 for gain in gains) / 19 / 20)
    (t,) = directedness(path_N3[:, None], [1.0] * 80)
    assert t == pytest.approx(np.mean(gains) / error, rel=1e-12)


def test_steps_without_alpha_do_not_count() -> None:
    """Every fourth step alone is alpha's: the same path, with and without the steps between."""
    walk_NLC = np.random.default_rng(0).standard_normal((101, 3, 3)).cumsum(0) * 0.05
    rates = np.linspace(1.0, 0.1, 100)
    slow_NLC = np.concatenate([walk_NLC[:1], np.repeat(walk_NLC[1:], 4, axis=0)])
    slow = np.stack([rates, *[np.zeros(100)] * 3], axis=1).ravel()
    assert directedness(slow_NLC, list(slow)) == pytest.approx(directedness(walk_NLC, list(rates)))
    few_NLC = np.concatenate([walk_NLC[:1], np.repeat(walk_NLC[1:22], 4, axis=0)])
    assert np.isnan(directedness(few_NLC, list(slow[:84]))).all()


def test_what_comes_after_a_slot_has_settled_is_left_out() -> None:
    path_N3 = np.zeros((401, 3))
    path_N3[:, 0] = np.minimum(np.arange(401) / 80, 1) * 6
    path_N3 += np.random.default_rng(0).standard_normal((401, 3)) * 0.05
    (t,) = directedness(path_N3[:, None], [1.0] * 400)
    assert t > 5
    # The same rise at the end of a long wait has no such excuse.
    (late,) = directedness(np.concatenate([np.zeros((400, 3)), path_N3])[:, None], [1.0] * 800)
    assert late < 2.5


SOUND = Diagnostics(0.3, 0.5, "dense", 0.5, np.full(6, 4.0))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"nothing_share": 0.59}, ""),
        ({"nothing_share": 0.61}, "identity has 61%"),
        ({"one_share": 0.94}, ""),
        ({"one_share": 0.96}, "dense has 96% of pi"),
        ({"mean_margin": 0.11}, ""),
        ({"mean_margin": 0.09}, "its mean margin is 0.090 (below 0.1)"),
        ({"directed_L": np.array([2, 2, 2, 3, 3, 3])}, ""),
        ({"directed_L": np.array([2, 2, 2, 2, 3, 3])}, "in 4 of 6 blocks"),
        (
            {"directed_L": np.array([2, 2, 2, np.nan, np.nan, np.nan])},
            "in 3 of 6 blocks alpha moved",
        ),
        ({"directed_L": np.array([1, 2, 2, 2.2, 9, np.nan])}, "median t statistic 2.0, below 2.5"),
        ({"directed_L": np.full(6, np.nan)}, "in 6 of 6 blocks alpha moved for too few steps"),
    ],
)
def test_where_each_warning_begins(changes: dict[str, Any], word: str) -> None:
    lines = warnings_of(replace(SOUND, **changes))
    assert len(lines) == bool(word)
    assert all(word in line for line in lines)


def test_a_falling_learning_rate_does_not_look_like_noise() -> None:
    rate_M = np.cos(np.linspace(0, np.pi / 2, 800)) ** 2
    path_N = np.concatenate([[0.0], rate_M.cumsum() / rate_M.sum() * 3])
    generator = np.random.default_rng(0)
    shakes_N = np.concatenate([[0.0], (generator.standard_normal(800) * rate_M).cumsum() * 0.01])
    alpha_NLC = np.stack([path_N + shakes_N, np.zeros(801)], axis=-1)[:, None]
    assert directedness(alpha_NLC, list(rate_M))[0] > 8
    assert directedness(alpha_NLC, [1.0] * 800)[0] < 8


def test_a_path_begins_at_alphas_first_step_and_has_a_rate_of_0_between_its_steps() -> None:
    alpha = {"warmup_fraction": 0.25, "every": 2, "lr": 0.1, "schedule": "constant"}
    config = SearchConfig.model_validate({"steps": 8, "alpha": alpha})
    plan = SearchPlan(config, 8, memory=5, segment=4)
    path_NLC, rate_M = alpha_path(np.arange(1.0, 9.0)[:, None, None], plan)
    assert path_NLC.ravel().tolist() == [0, 3, 4, 5, 6, 7, 8]
    assert rate_M == [0.1, 0, 0.1, 0, 0.1, 0]
