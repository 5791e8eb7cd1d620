"""What a search costs, against sums by hand."""

from typing import Any

import pytest

from nas.search.config import SearchConfig
from nas.search.plan import SearchPlan, search_flops

# attention, dense and identity in two slots, beside the embedding and the softmax
FLOPS, REST, SLOTS = [8.0, 4.0, 0.0], 10.0, 2
ALL, ONE, TWO = REST + SLOTS * 12.0, REST + SLOTS * 4.0, REST + SLOTS * 8.0


@pytest.mark.parametrize(
    ("options", "alpha", "expected"),
    [
        ({}, {"warmup_fraction": 0.0, "data": "shared"}, 20 * 3 * ALL),
        ({}, {}, 20 * 3 * ONE + 10 * 2 * ALL),
        ({"estimator": "soft"}, {"warmup_fraction": 0.25}, 20 * 3 * ALL + 15 * 2 * ALL),
        ({"estimator": "soft"}, {"warmup_fraction": 0.25, "every": 4}, 20 * 3 * ALL + 4 * 2 * ALL),
        ({"estimator": "dirichlet"}, {"warmup_fraction": 0.5}, 20 * 3 * ALL + 10 * 2 * ALL),
        ({"estimator": "straight_through"}, {"warmup_fraction": 0.5}, 20 * 3 * ONE + 10 * 2 * ALL),
        ({"estimator": "single_path"}, {"warmup_fraction": 0.5}, 20 * 3 * ONE + 10 * 2 * ONE),
        ({"estimator": "two_path"}, {"warmup_fraction": 0.5}, 20 * 3 * ONE + 10 * 2 * TWO),
        ({"estimator": "two_path"}, {"warmup_fraction": 0.0, "data": "shared"}, 20 * 3 * TWO),
        ({"estimator": "spos"}, {}, 20 * 3 * ONE),
        (
            {"estimator": "spos"},
            {"warmup_fraction": 0.5, "estimator": "two_path"},
            20 * 3 * ONE + 10 * 2 * TWO,
        ),
    ],
)
def test_every_pass_of_a_search_is_counted(
    options: dict[str, Any], alpha: dict[str, Any], expected: float
) -> None:
    config = SearchConfig.model_validate(
        {"steps": 20, "optimiser": {"warmup_steps": 2}, "alpha": alpha, **options}
    )
    plan = SearchPlan(config, 20, memory=0, segment=1)
    flops_N = search_flops(plan, FLOPS, REST, SLOTS)
    assert len(flops_N) == plan.steps
    assert sum(flops_N) == pytest.approx(expected)
