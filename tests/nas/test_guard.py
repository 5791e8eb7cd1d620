"""What the guard says of paths whose story is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.guard import BLOCKS, Watch, directedness, warnings_of, watch

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


def seen(path_NLC: NDArray[np.float32]) -> Watch:
    return watch(path_NLC, [1.0] * (len(path_NLC) - 1), LABELS, NOTHING)


def ends(*winners: int, lead: float = 3.0) -> NDArray[np.float64]:
    return np.array([[lead if k == winner else 0.0 for k in range(3)] for winner in winners])


def test_a_clear_search_is_not_warned_of() -> None:
    found = seen(straight(ends(0, 1, 0, 1, 2, 0), noise=0.01))
    assert warnings_of(found) == []
    assert found.one_label == "attention"
    assert (found.directed_L > 5).all()


def test_identity_everywhere_is_a_collapse() -> None:
    found = seen(straight(ends(2, 2, 2, 1)))
    assert found.nothing_share == pytest.approx(0.69, abs=0.05)
    (line,) = warnings_of(found)
    assert line.startswith("warning: candidates that add nothing have 69% of pi (above 60%)")


def test_one_candidate_everywhere_is_said() -> None:
    found = seen(straight(ends(0, 0, 0, 0, lead=6.0)))
    (line,) = warnings_of(found)
    assert "attention has 100% of pi" in line or "attention has 99% of pi" in line


def test_a_standstill_is_said() -> None:
    (line,) = warnings_of(seen(straight(ends(0, 1, 2, lead=0.1))))
    assert "pi hardly moved: the mean margin is 0.03" in line


def test_a_random_walk_is_told_from_a_path() -> None:
    generator = np.random.default_rng(1)
    walk = generator.standard_normal((600, 8, 3)).cumsum(0).astype(np.float32) * 0.05
    found = seen(walk)
    assert found.mean_margin > 0.1
    assert any("moved as noise would move it" in line for line in warnings_of(found))


def test_the_false_alarm_rates_of_the_t_statistic() -> None:
    """A walk passes seldom; a path with as much signal as noise in each part nearly always."""
    generator = np.random.default_rng(2)
    walks = generator.standard_normal((2001, 400, 2)).cumsum(0) * 0.05
    walks -= walks[:1]
    t_L = directedness(walks, [1.0] * 2000)
    assert (t_L > 0).all()
    assert (t_L > 2.5).mean() < 0.05
    drift = np.linspace(0, 1, 2001)[:, None, None] * np.array([1.0, 0.0])
    # One part's gain is as large as its noise: t is about sqrt(BLOCKS) = 4.5.
    noise = generator.standard_normal((2001, 400, 2)).cumsum(0) / np.sqrt(2 * 2000 * BLOCKS)
    assert (directedness(drift + noise, [1.0] * 2000) > 2.5).mean() > 0.9


def test_few_steps_and_single_candidates_say_nothing_about_direction() -> None:
    assert np.isnan(directedness(np.zeros((BLOCKS, 2, 3)), [1.0] * (BLOCKS - 1))).all()
    assert np.isnan(directedness(np.zeros((100, 2, 1)), [1.0] * 99)).all()
    alone = watch(np.zeros((100, 2, 1), dtype=np.float32), [1.0] * 99, ["dense"], [False])
    assert alone.mean_margin == 1.0


def test_a_falling_learning_rate_does_not_look_like_noise() -> None:
    rate_M = np.cos(np.linspace(0, np.pi / 2, 800)) ** 2
    path_N = np.concatenate([[0.0], rate_M.cumsum() / rate_M.sum() * 3])
    generator = np.random.default_rng(0)
    shakes_N = np.concatenate([[0.0], (generator.standard_normal(800) * rate_M).cumsum() * 0.01])
    alpha_NLC = np.stack([path_N + shakes_N, np.zeros(801)], axis=-1)[:, None]
    assert directedness(alpha_NLC, list(rate_M))[0] > 8
    assert directedness(alpha_NLC, [1.0] * 800)[0] < 8
