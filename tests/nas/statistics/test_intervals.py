"""What is said about a difference, and when nothing is."""

import math

import numpy as np
import pytest

from benchmarks.harness import shown_by
from nas.statistics.intervals import (
    change_words,
    holm,
    paired_differences,
    paired_interval,
    percent,
    shown_at,
    smallest_visible,
    students_p,
    t95,
    verdict,
)


def test_one_seed_gives_no_verdict() -> None:
    assert verdict([3.0], {"par": [3.5]}) == ["not testable with one seed: it could be chance"]


def test_the_interval_is_students() -> None:
    mean, half = paired_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.303 * 1.0 / 3**0.5)
    with pytest.raises(ValueError, match="two differences or more, found 1"):
        paired_interval([1.0])


def test_a_difference_within_its_interval_is_not_shown() -> None:
    """Neither better nor "not better": with three seeds a large difference would not be seen."""
    ours, theirs = [3.0, 3.1, 3.2], [3.05, 3.05, 3.25]
    lines = verdict(ours, {"par": theirs})
    half = paired_interval([a - b for a, b in zip(ours, theirs, strict=True)])[1]
    visible = smallest_visible(half, 3)
    assert lines[0] == (
        "No difference shown between the chosen layout and par (the smallest visible one is "
        f"{100 * math.expm1(visible):.1f}%, {visible:.4f} nats/token): perplexity is 1.7% lower "
        f"(95% interval {percent(-0.05 / 3 - half)} to {percent(-0.05 / 3 + half)}, 3 seeds), "
        f"-0.0167 nats/token, p {paired_differences(ours, {'par': theirs})['par'].p:.4f}"
    )
    assert lines[1].endswith("nothing follows about the search itself.")


def test_a_difference_is_a_sentence_of_perplexity() -> None:
    assert change_words([3.02, 3.03, 3.01], [3.0, 3.0, 3.0]) == (
        "perplexity is 2.0% higher (95% interval -0.5% to +4.6%, 3 seeds)"
    )
    assert change_words([2.9], [3.0]) == "perplexity is 9.5% lower (one seed, no interval)"
    assert [percent(nats) for nats in (-5.0, 0.0, 2.0, 20.0)] == [
        "-99.3%", "+0.0%", "+638.9%", "+5e+10%",
    ]  # fmt: skip


@pytest.mark.parametrize(("n", "baselines"), [(2, 1), (3, 1), (3, 4), (5, 2)])
def test_the_smallest_visible_difference_is_shown_four_times_in_five(
    n: int, baselines: int
) -> None:
    """Of several baselines one is worse by it, and the others are as good."""
    generator, draws, spread = np.random.default_rng(0), 4000, 0.1
    visible = smallest_visible(t95(n - 1) * spread / n**0.5, n, baselines)
    seen = 0
    for _ in range(draws):
        less_BN = generator.normal(0, spread, size=(baselines, n))
        less_BN[0] -= visible
        others = {str(at): list(-less_N) for at, less_N in enumerate(less_BN)}
        seen += paired_differences([0.0] * n, others)["0"].shown == "better"
    # Three standard errors.
    assert seen / draws == pytest.approx(0.8, abs=0.019)


def test_an_interval_that_ends_at_0_shows_nothing() -> None:
    assert shown_by((-1.0, 0.0)) == shown_by((0.0, 1.0)) == "nothing"
    assert (shown_by((-1.0, -0.1)), shown_by((0.1, 1.0))) == ("better", "worse")


def test_a_p_value_of_the_level_shows_nothing() -> None:
    shown = [shown_at(mean, p) for mean in (-1.0, 1.0) for p in (0.049, 0.05)]
    assert shown == ["better", "nothing", "worse", "nothing"]


def test_one_comparison_is_shown_where_its_interval_excludes_0() -> None:
    for end, shown in ((-1e-3, "nothing"), (1e-3, "better")):
        half = paired_interval([-1.0, 0.0, 1.0])[1]
        ones = [value - half - end for value in (-1.0, 0.0, 1.0)]
        found = paired_differences(ones, {"par": [0.0] * 3})["par"]
        assert found.shown == shown == shown_by(found.interval)


def test_of_several_comparisons_holms_p_values_decide_and_intervals_stay() -> None:
    ones, none = [-1.0, -1.2, -1.4], [0.0] * 3
    (alone,) = paired_differences(ones, {"par": none}).values()
    assert (alone.shown, round(alone.p, 4)) == ("better", 0.0091)
    others = {f"like-{k}": [one + (-1) ** at for at, one in enumerate(ones)] for k in range(5)}
    among = paired_differences(ones, {**others, "par": none})["par"]
    assert among.p == pytest.approx(6 * alone.p)
    assert (among.interval, among.shown) == (alone.interval, "nothing")
    *_, line, rule, _ = verdict(ones, {**others, "par": none})
    visible = smallest_visible(among.half_width, 3, 6)
    assert line.startswith("No difference shown between the chosen layout and par (the smallest ")
    assert f"%, {visible:.4f} nats/token): perplexity is 69.9% lower (95% interval " in line
    assert line.endswith(", 3 seeds), -1.2000 nats/token, adjusted p 0.0548")
    assert rule.startswith("A difference is shown where p is below 0.05 by Holm's method over all")


def test_equal_layouts_are_seldom_called_better_or_worse() -> None:
    """By intervals alone one of four is in 18% of comparisons, as docs/reading_results.md says."""
    generator, wrong, by_intervals = np.random.default_rng(0), 0, 0
    for _ in range(500):
        mine, *others = generator.normal(size=(5, 3)).tolist()
        found = paired_differences(mine, {str(at): one for at, one in enumerate(others)})
        wrong += any(one.shown != "nothing" for one in found.values())
        by_intervals += any(shown_by(one.interval) != "nothing" for one in found.values())
    assert wrong / 500 < 0.08
    assert by_intervals / 500 == pytest.approx(0.18, abs=0.04)


def test_a_difference_without_spread_is_shown_unless_it_is_0() -> None:
    found = paired_differences([1.0, 2.0], {"same": [1.0, 2.0], "more": [1.5, 2.5]})
    assert [one.shown for one in found.values()] == ["nothing", "better"]


def test_p_and_t_are_those_of_printed_tables() -> None:
    for freedom, t in ((1, 12.706), (2, 4.303), (7, 2.365), (30, 2.042), (1000, 2.042)):
        assert t95(freedom) == t
        assert students_p(-1.0, 1.0, freedom + 1) == pytest.approx(0.05, abs=2e-4)
    assert students_p(0.0, 1.0, 4) == 1.0
    assert students_p(math.inf, 1.0, 4) == 0.0


def test_p_values_are_adjusted_as_holm_says() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 4) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7], 2) == [1.0, 1.0]


def test_a_comparison_that_is_planned_counts_before_it_is_made() -> None:
    assert holm([0.01, 0.04], 4) == pytest.approx([0.04, 0.12])
