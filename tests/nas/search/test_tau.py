"""tau at the ends of every registered schedule, and between them."""

from itertools import pairwise

import pytest

from nas.config import TauConfig
from nas.search.tau import TAU_SCHEDULES, tau_at

MOVING = [name for name in TAU_SCHEDULES if name != "constant"]


@pytest.mark.parametrize("schedule", MOVING)
def test_law_9_tau_has_start_until_alphas_first_step_and_end_at_the_last(schedule: str) -> None:
    config = TauConfig(schedule=schedule, start=2.0, end=0.2)
    values = [tau_at(config, step, alpha_start=25, steps=100) for step in range(100)]
    assert values[:26] == [2.0] * 26
    assert values[99] == 0.2
    assert tau_at(config, 100, alpha_start=25, steps=100) == 0.2
    assert all(a >= b for a, b in pairwise(values))


@pytest.mark.parametrize(
    ("schedule", "middle"), [("linear", 1.1), ("cosine", 1.1), ("exponential", 0.4**0.5)]
)
def test_half_way_values(schedule: str, middle: float) -> None:
    config = TauConfig(schedule=schedule, start=2.0, end=0.2)
    assert tau_at(config, 50, alpha_start=0, steps=101) == pytest.approx(middle)


def test_exponential_ends_at_end_and_not_at_start_times_end() -> None:
    config = TauConfig(schedule="exponential", start=2.0, end=0.2)
    assert tau_at(config, 9, alpha_start=0, steps=10) == 0.2


def test_step_has_equal_geometric_stairs_with_the_last_at_end() -> None:
    config = TauConfig(schedule="step", start=1.6, end=0.1, stairs=5)
    values = [tau_at(config, step, alpha_start=0, steps=1001) for step in range(1001)]
    stairs = sorted(set(values), reverse=True)
    expected = [1.6, 0.8, 0.4, 0.2, 0.1]
    assert len(stairs) >= 5
    for value in stairs:
        assert min(abs(value - stair) for stair in expected) < 1e-12
    lengths = [sum(abs(value - stair) < 1e-12 for value in values) for stair in expected]
    assert max(lengths) - min(lengths) <= 1


def test_constant_has_one_value_and_refuses_an_end() -> None:
    config = TauConfig(schedule="constant", start=0.7)
    assert {tau_at(config, step, alpha_start=3, steps=10) for step in range(10)} == {0.7}
    with pytest.raises(ValueError, match=r"end: has no effect with schedule constant, found 0\.1"):
        TauConfig(schedule="constant", end=0.1)


def test_the_schema_offers_what_is_registered() -> None:
    schema = TauConfig.model_json_schema()["properties"]["schedule"]["enum"]
    assert schema == [*TAU_SCHEDULES, "learnable"]


@pytest.mark.parametrize("schedule", TAU_SCHEDULES)
def test_what_a_schedule_says_of_keys_left_out_is_what_it_does(schedule: str) -> None:
    config = TauConfig(schedule=schedule, start=2.0)
    given = TauConfig(schedule=schedule, start=2.0, **config.left_out())
    assert given.left_out() == {}
    for step in range(40):
        assert tau_at(config, step, alpha_start=3, steps=40) == tau_at(
            given, step, alpha_start=3, steps=40
        )
