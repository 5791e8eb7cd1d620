"""Learning rates at the steps that matter."""

import pytest

from training.config import OptimiserConfig
from training.optim import decay, learning_rate, warmup_steps


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_the_schedule_starts_at_the_peak_and_ends_at_final(schedule: str, final: float) -> None:
    config = OptimiserConfig(lr=2.0, warmup_steps=0, schedule=schedule, final=final)
    assert learning_rate(config, 0, 100) == pytest.approx(2.0, abs=1e-15)
    assert learning_rate(config, 99, 100) == pytest.approx(2.0 * final, abs=1e-15)


def test_half_way_cosine_and_linear_stand_between_peak_and_final() -> None:
    assert decay("cosine", 0.5, 0.2) == pytest.approx(0.6)
    assert decay("linear", 0.25, 0.2) == pytest.approx(0.8)
    assert decay("cosine", 0.25, 0.0) == pytest.approx(0.5 * (1 + 2**-0.5))


def test_constant_stays() -> None:
    config = OptimiserConfig(lr=0.5, warmup_steps=0, schedule="constant")
    assert {learning_rate(config, step, 10) for step in range(10)} == {0.5}


def test_warmup_rises_evenly_to_the_peak() -> None:
    config = OptimiserConfig(lr=1.0, warmup_steps=3, schedule="linear", final=0.0)
    rates = [learning_rate(config, step, 8) for step in range(8)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0])


def test_warmup_left_out_is_a_tenth_of_the_steps_and_at_most_100() -> None:
    config = OptimiserConfig()
    assert [warmup_steps(config, steps) for steps in (5, 60, 5000)] == [0, 6, 100]
    assert warmup_steps(OptimiserConfig(warmup_steps=7), 5000) == 7
