"""What the rank harness says of SuperNets that know nothing, and of ones that know much."""

import pytest

from benchmarks.rank_power import Rivals, said, trials


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["apart", "alike"])
def test_pure_noise_is_seldom_called_better_or_worse(kind: Rivals) -> None:
    parts = said(trials(200, 20, 0.0, 0.0, kind))
    # 2.5% each are nominal: 5 of 200, and 9 or more would come in 7 of 100 such tests.
    assert parts["worse"] <= 0.04
    assert parts["better"] <= 0.04


def test_what_is_far_better_or_worse_is_called_so() -> None:
    assert said(trials(40, 20, 0.9, 0.1, "apart"))["better"] >= 0.8
    assert said(trials(40, 20, 0.0, 0.9, "alike"))["worse"] >= 0.8
