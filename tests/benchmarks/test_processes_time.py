"""The arithmetic of the claim about processes."""

import pytest

from benchmarks.processes_time import BASE, SIDES, compared


def test_speeds_are_compared_within_a_round() -> None:
    first, second, _ = SIDES
    rounds = [
        {first: 0.4, second: 0.25, BASE: 0.2},
        {first: 0.8, second: 0.44, BASE: 0.4},
        {first: 0.8, second: 0.5, BASE: 0.4},
    ]
    rows = compared(rounds, tokens=1000)
    assert [row["speed"] for row in rows.values()] == pytest.approx([0.5, 0.8, 1.0])
    assert rows[second]["median_ms"] == pytest.approx(440)
    assert rows[second]["tokens_per_s"] == pytest.approx(1000 / 0.44)
    assert (rows[second]["low_ms"], rows[second]["high_ms"]) == pytest.approx((250, 500))
