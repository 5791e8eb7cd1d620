"""The headline's statistics against scipy, its rates, its choices, and the order of trainings."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.arms import (
    Arm,
    Arms,
    Comparison,
    Group,
    Option,
    arms_by_name,
    chosen,
    next_trainings,
    rate_of,
    settings_words,
)
from benchmarks.arms_report import (
    TrainedArm,
    comparison_lines,
    difference_of,
    nats_of,
    primary_line,
    rate_lines,
    welch,
)
from benchmarks.headline import check_same_trainings, job_of
from benchmarks.keys import key_of
from benchmarks.layout_rows import Row
from pipeline.experiment import load_experiment


def arm_of(layout: str, *nats: float) -> TrainedArm:
    return TrainedArm(Arm(name=layout, layout=layout, seeds=(0,)), layout, dict(enumerate(nats)))


def test_a_difference_weighs_each_arm_by_a_deviation_of_its_own() -> None:
    ones, others = [3.1, 3.4, 3.2, 3.0], [3.45, 3.46, 3.44]
    squares = [np.var(side, ddof=1) / len(side) for side in (ones, others)]
    error = math.sqrt(sum(squares))
    freedom = error**4 / (squares[0] ** 2 / 3 + squares[1] ** 2 / 2)
    difference = welch(ones, others)
    assert difference is not None
    mean = np.mean(ones) - np.mean(others)
    half = stats.t.ppf(0.975, freedom) * error
    p = 2 * stats.t.sf(abs(mean) / error, freedom)
    assert difference == pytest.approx((mean, half, p), rel=1e-9)
    assert welch(ones, others[:1]) is None


def test_an_arm_against_several_is_against_their_means_once_each() -> None:
    one = arm_of("ad", 3.0, 3.1)
    others = [arm_of("da", 3.2), arm_of("aad", 3.4, 3.5, 3.9), arm_of("dd", 3.9)]
    difference = difference_of(one, [*others, others[0]])
    assert difference == welch([3.0, 3.1], [3.2, 3.6, 3.9])
    assert difference_of(one, others[:2]) == welch([3.0, 3.1], [3.2, 3.6])
    assert difference_of(one, others[1:2]) == welch([3.0, 3.1], [3.4, 3.5, 3.9])
    assert difference_of(one, [*others, arm_of("ad", 3.0, 3.1)]) is None, "one network"


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


ARMS = Arms(
    rates=(1e-3, 2e-3),
    rate_seed=100,
    rate_layouts=("adadad", "adad"),
    groups=(
        Group(
            name="tight",
            among=("ad", "da", "aad", "dddddd"),
            choice_seeds=(200, 201),
            again=2,
            arms=(
                Arm(name="whole", layout="adadad", seeds=(0,)),
                Arm(name="chosen", seeds=(0, 1)),
                Arm(name="whole again", layout="adadad", seeds=(0,)),
            ),
        ),
    ),
)


def row(layout: str, lr: float, seed: int, nats: float, settings: str = "{}") -> Row:
    figures = {"valid_nats": str(nats), "test_nats": str(nats + 1)}
    return {"layout": layout, "settings": settings, "lr": str(lr), "seed": str(seed)} | figures


def rated() -> list[Row]:
    nats = {("adadad", 1e-3): 4.0, ("adadad", 2e-3): 3.9, ("adad", 1e-3): 4.1, ("adad", 2e-3): 4.2}
    return [row(layout, lr, 100, of) for (layout, lr), of in nats.items()]


def test_a_network_takes_the_rate_of_the_deepest_rate_layout_that_is_no_deeper() -> None:
    others = [
        row("adadad", 1e-3, 0, 3.0),  # another seed
        row("adadad", 4e-3, 100, 1.0),  # a rate that is not asked for
        row("adadad", 1e-3, 100, 1.0, '{"model.d_ffn": 8}'),
    ]
    rates = {
        layout: rate_of(ARMS, layout, rated() + others) for layout in ("ad", "adada", "dddddda")
    }
    assert rates == {"ad": 1e-3, "adada": 1e-3, "dddddda": 2e-3}


def test_an_option_has_rates_of_its_own_that_are_tried_first() -> None:
    wide = {"model.d_ffn": 8}
    option = Option(name="wide", settings=wide, layouts=("adad",))
    arms = ARMS.model_copy(update={"options": (option,)})
    assert [one[:3] for one in next_trainings(arms, rated())] == [
        ("adad", wide, 1e-3),
        ("adad", wide, 2e-3),
    ]
    rows = rated() + [
        row("adad", lr, 100, nats, settings_words(wide)) for lr, nats in ((1e-3, 4.3), (2e-3, 4.2))
    ]
    rates = [rate_of(arms, "adada", rows, settings) for settings in (None, wide, {"other": 1})]
    assert rates == [1e-3, 2e-3, 1e-3]
    assert [*rate_lines(arms, rows)][-1].endswith("0.001: 4.3000  0.002: 4.2000  wide +0.1000")


def test_the_choice_is_the_best_mean_of_those_that_were_trained_again() -> None:
    once = {"ad": 4.0, "da": 4.1, "aad": 4.3, "dddddd": 4.4}
    rows = rated() + [
        row(layout, 2e-3 if layout == "dddddd" else 1e-3, 200, nats)
        for layout, nats in once.items()
    ]
    (group,) = ARMS.groups
    assert chosen(ARMS, group, rows) is None
    rows += [row("ad", 1e-3, 201, 4.4), row("da", 1e-3, 201, 4.2), row("aad", 1e-3, 201, 1.0)]
    assert chosen(ARMS, group, rows) == "da"
    arm, layout = arms_by_name(ARMS, rows)["chosen"]
    assert layout == "da"
    rows += [row("da", 1e-3, 0, 4.0), row("da", 2e-3, 1, 4.0), row("da", 1e-3, 200, 4.0)]
    assert nats_of(arm, layout, 1e-3, rows) == {0: 5.0}


def test_what_is_missing_is_trained_stage_by_stage_and_nothing_twice() -> None:
    rows, stages = list[Row](), list[list[tuple[str, float, int]]]()
    while missing := next_trainings(ARMS, rows):
        stages.append([(layout, rate, seed) for layout, _, rate, seed in missing])
        rows += [row(layout, lr, seed, len(layout) + lr) for layout, lr, seed in stages[-1]]
    assert stages == [
        [("adadad", 1e-3, 100), ("adadad", 2e-3, 100), ("adad", 1e-3, 100), ("adad", 2e-3, 100)],
        [(layout, 1e-3, 200) for layout in ("ad", "da", "aad", "dddddd")],
        [("ad", 1e-3, 201), ("da", 1e-3, 201)],
        [("adadad", 1e-3, 0), ("ad", 1e-3, 0), ("ad", 1e-3, 1)],
    ]


def test_a_shorter_layout_is_filled_up_with_what_adds_nothing(experiment_file: Path) -> None:
    experiment = load_experiment(experiment_file, [])
    job = job_of(("ad", {"model.d_ffn": 8}, 4e-3, 7), experiment, Path("run"))
    assert job.experiment.derive.layout == "adii"
    assert job.experiment.model.d_ffn == 8
    assert (job.experiment.run.seed, job.experiment.retrain.optimiser.lr) == (7, 4e-3)
    assert job.name == "ad, model.d_ffn=8, lr 0.004, seed 7"


def test_comparisons_are_welchs_with_holms_p_values() -> None:
    trained = {
        "one": arm_of("ad", 3.0, 3.1, 3.2),
        "other": arm_of("da", 3.4, 3.5),
        "again": arm_of("ad", 3.0, 3.1, 3.2),
        "single": arm_of("dd", 3.0),
    }
    against = [("one", "other"), ("again", "one"), ("other", "single")]
    comparisons = [Comparison(arm=arm, against=(other,)) for arm, other in against]
    lines = [*comparison_lines(comparisons, trained, 5)]
    difference = difference_of(trained["one"], [trained["other"]])
    assert difference is not None
    mean, half, p = difference
    assert lines == [
        "compared: again less one: one network, or a single training",
        "compared: other less single: one network, or a single training",
        f"compared: one less other {mean:+.4f} +- {half:.4f} nats, "
        f"p {5 * p:.4f} (Holm, 5 comparisons): no difference shown",
    ]
    assert mean + half < 0 < 0.05 < 5 * p, "the interval is not adjusted and decides nothing"
    for one, other, verdict in (("one", "far", "better"), ("far", "one", "worse")):
        sure = trained | {"far": arm_of("aad", 5.0, 5.1)}
        (line,) = comparison_lines([Comparison(arm=one, against=(other,))], sure, 5)
        assert line.endswith(f"(Holm, 5 comparisons): {verdict}")


def test_rows_of_another_experiment_count_only_where_it_trains_alike(
    experiment_file: Path, tmp_path: Path
) -> None:
    def key_file(name: str, *settings: str) -> Path:
        key = key_of(load_experiment(experiment_file, settings), {"corpus": "c0ffee"})
        (tmp_path / name).write_text(json.dumps({**key, "commit": name}))
        return tmp_path / name

    theirs = key_file("theirs.json")
    more = "model.candidates=[attention, short_conv, dense, identity]"
    check_same_trainings(key_file("ours.json", more), theirs)
    wide = "model.candidates=[{kind: attention, n_heads: 4}, dense, identity]"
    for other, words in (("retrain.steps=24", "retrain.steps is 25, now 24"), (wide, "candidates")):
        with pytest.raises(ValueError, match=f"{words}.*give no such --also"):
            check_same_trainings(key_file("ours.json", other), theirs)
