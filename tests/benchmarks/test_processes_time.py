"""The arithmetic of the claim about processes."""

import pytest

from benchmarks import processes_time
from benchmarks.processes_time import BASE, SIDES, Started, compared, quiet_rounds


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
    assert rows[second]["rounds_ms"] == pytest.approx([250, 440, 500])


def test_each_round_begins_with_another_side(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    def taken(shape: str, steps: int, started: Started) -> float:
        order.append(started)
        return 1.0

    monkeypatch.setattr(processes_time, "seconds", taken)
    monkeypatch.setattr("utils.cores.read_cpu", lambda: None)
    rounds = quiet_rounds("small", 3, 4)
    first, second, third = SIDES.values()
    assert order == [
        *(first, second, third, second, third, first, third, first, second),
        *(first, second, third),
    ]
    assert [set(each) for each in rounds] == [set(SIDES)] * 4
