"""The headline's statistics against scipy, and which learning rate an arm takes."""

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.arms_fit import fitted, holm
from benchmarks.headline import Arm, Arms, Comparison, primary_line, rates_of


def drawn(arms: int, seeds: int) -> dict[str, dict[int, float]]:
    nats_AS = np.random.default_rng(3).normal(size=(arms, seeds))
    return {f"arm {a}": dict(enumerate(row_S.tolist())) for a, row_S in enumerate(nats_AS)}


def test_with_two_arms_and_the_same_seeds_a_difference_is_the_paired_t_test() -> None:
    nats = drawn(2, 6)
    ones, others = ([*of.values()] for of in nats.values())
    reference = stats.ttest_rel(ones, others)
    mean, half, p = fitted(nats).difference("arm 0", ["arm 1"])
    assert mean == pytest.approx(np.mean(ones) - np.mean(others), abs=1e-12)
    low, high = reference.confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-12)
    assert p == pytest.approx(reference.pvalue, rel=1e-9)


def test_the_effect_of_a_seed_does_not_count_for_the_arm_that_has_it_alone() -> None:
    nats = {"one": {0: 4.0, 1: 5.0, 2: 4.5}, "other": {0: 4.2, 1: 5.2}}
    mean, half, _ = fitted(nats).difference("one", ["other"])
    assert mean == pytest.approx(-0.2, abs=1e-12)
    assert half == pytest.approx(0.0, abs=1e-9)


def test_an_arm_against_several_is_against_their_mean() -> None:
    nats = drawn(4, 3)
    mean, *_ = fitted(nats).difference("arm 0", ["arm 1", "arm 2", "arm 3"])
    means = [np.mean([*of.values()]) for of in nats.values()]
    assert mean == pytest.approx(means[0] - np.mean(means[1:]), abs=1e-12)


def test_p_values_are_adjusted_as_holm_says() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_a_margin_asks_for_a_one_sided_bound_below_it() -> None:
    nats = {"one": {0: 4.03, 1: 4.02, 2: 4.01}, "other": {0: 4.0, 1: 4.0, 2: 4.0}}
    bound = 0.02 + stats.t.ppf(0.95, 2) * 0.01 / math.sqrt(3)
    for margin, words in ((bound + 1e-6, "not worse by"), (bound - 1e-6, "not shown to be within")):
        line = primary_line(Comparison(arm="one", against=("other",), margin_nats=margin), nats)
        assert words in line
    better = primary_line(Comparison(arm="other", against=("one",)), nats)
    assert "not shown" in better
    nats["one"] = {seed: value + 0.01 for seed, value in nats["one"].items()}
    assert better.split(":")[0] == "primary"
    assert primary_line(Comparison(arm="other", against=("one",)), nats).endswith(": better")


def test_an_arm_takes_the_rate_of_least_validation_nats_of_the_seed_for_rates() -> None:
    one = Arm(name="one", layout="ad", seeds=(0,))
    arms = Arms(
        rates=(1e-3, 2e-3),
        rate_seed=100,
        arms=(one, Arm(name="narrow", layout="ad", settings={"model.d_ffn": 8}, seeds=(0,),
                       like="one")),
    )  # fmt: skip
    rows = [
        {"layout": layout, "settings": settings, "lr": str(lr), "seed": str(seed),
         "valid_nats": str(nats)}
        for layout, settings, lr, seed, nats in (
            ("ad", "{}", 1e-3, 100, 4.0),
            ("ad", "{}", 2e-3, 100, 3.9),
            ("ad", "{}", 1e-3, 0, 3.0),
            ("ad", "{}", 4e-3, 100, 1.0),
            ("da", "{}", 1e-3, 100, 1.0),
            ("ad", '{"model.d_ffn": 8}', 1e-3, 100, 1.0),
        )
    ]  # fmt: skip
    assert rates_of(arms, rows) == {"one": 2e-3, "narrow": 2e-3}
