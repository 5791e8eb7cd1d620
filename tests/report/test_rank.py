"""The figure of a rank harness."""

from typing import Any

import pytest

from report.rank import rank_figure


def tau(value: float) -> dict[str, float]:
    return {"tau": value, "low": value - 0.2, "high": value + 0.2}


@pytest.mark.parametrize("ceiling", [0.625, None])
def test_it_tells_agreement_from_what_a_perfect_predictor_reaches(ceiling: float | None) -> None:
    group: dict[str, Any] = {
        "n": 2,
        "title": "free",
        "supernet": tau(0.5),
        "trivial": {"FLOPs": tau(0.3)},
        "direction": {"FLOPs": "more"},
        "agreement": None if ceiling is None else tau(0.4),
        "ceiling": ceiling,
    }
    row = {"free": True, "supernet_nats": 4.0, "supernet_error": 0.1, "alone_nats": 5.0}
    figure = rank_figure({"groups": {"free": group}, "rows": [row, row]})
    scatter, taus = figure.axes
    assert scatter.get_xlabel() == "validation nats by the SuperNet's weights"
    assert scatter.get_ylabel() == "test nats after training alone"
    names = [label.get_text() for label in taus.get_yticklabels()]
    alike = [] if ceiling is None else ["agreement of two trainings"]
    assert names == ["SuperNet", "more FLOPs", *alike]
    dashed = [line.get_xdata() for line in taus.get_lines() if line.get_linestyle() == "--"]
    assert [list(place) for place in dashed] == ([] if ceiling is None else [[ceiling, ceiling]])
