"""A sweep's figures show its numbers, whatever the trials are like."""

import struct

import matplotlib as mpl
import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from report.plotting import png
from report.sweep.axes import highest_shown, setting
from report.sweep.figures import draw_sweep, history, slices
from report.sweep.importance import bars, importances
from report.sweep.pareto import pareto
from report.sweep.trials import Objective, done, front, parse_rows
from tests.report.conftest import BITS, FLOPS

GOALS = [Objective(**BITS), Objective(**FLOPS)]
pytestmark = pytest.mark.filterwarnings("error")


def sizes(paths):
    """Width and height of PNG files in pixels."""
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        yield struct.unpack(">II", content[16:24])


def drawn(sweeper, rows, folder, objectives):
    return draw_sweep(sweeper.study(rows), rows, folder, objectives)


def line(axes, label):
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return found.get_xydata().tolist()


def test_one_objective_has_these_figures_of_a_sensible_size(sweeper, tmp_path):
    paths = drawn(sweeper, sweeper.many(40), tmp_path, [BITS])
    names = ["history.png", "importances.png", "slice.png"]
    assert paths == [tmp_path / name for name in names]
    for width, height in sizes(paths):
        assert 900 <= width <= 1500
        assert 250 <= height <= 1500


def test_two_objectives_have_a_front_and_the_rest_for_each(sweeper, tmp_path):
    paths = drawn(sweeper, sweeper.many(30, goals=2), tmp_path, [BITS, FLOPS])
    assert {path.name for path in paths} == {
        "history.png", "pareto.png", "importances.png", "slice-1.png", "slice-2.png",
    }  # fmt: skip
    assert len(list(sizes(paths))) == 5


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (0, set()),
        (1, {"history.png"}),
        (3, {"history.png", "slice.png"}),
        (9, {"history.png", "slice.png"}),
        (10, {"history.png", "slice.png", "importances.png"}),
    ],
)
def test_few_trials_have_the_figures_that_they_can_fill(sweeper, tmp_path, count, names):
    rows = sweeper.many(count, broken=False)
    assert {path.name for path in drawn(sweeper, rows, tmp_path, [BITS])} == names
    assert {path.name for path in tmp_path.iterdir()} == names


def test_trials_that_all_failed_have_a_history(sweeper, tmp_path):
    rows = [sweeper.row(n, state="failed", values=None) for n in range(4)]
    (path,) = drawn(sweeper, rows, tmp_path, [BITS])
    (axes,) = history(parse_rows(rows), GOALS[:1]).axes
    assert path.name == "history.png"
    assert [x for x, _ in line(axes, "failed")] == [0, 1, 2, 3]


def test_figures_that_no_longer_hold_go_and_other_files_stay(sweeper, tmp_path):
    for name in ("pareto.png", "slice.png", "mine.png", "slice.txt"):
        (tmp_path / name).write_bytes(b"old")
    drawn(sweeper, sweeper.many(1), tmp_path, [BITS])
    assert {path.name for path in tmp_path.iterdir()} == {"history.png", "mine.png", "slice.txt"}


def test_drawing_leaves_the_global_state(sweeper, tmp_path):
    before = dict(mpl.rcParams)
    drawn(sweeper, sweeper.many(30, goals=2), tmp_path, [BITS, FLOPS])
    assert dict(mpl.rcParams) == before


def test_the_same_sweep_gives_the_same_bytes(sweeper, tmp_path):
    rows = sweeper.many(12)
    first = [path.read_bytes() for path in drawn(sweeper, rows, tmp_path, [BITS])]
    with mpl.rc_context({"font.size": 20, "xtick.major.size": 20}):
        again = [path.read_bytes() for path in drawn(sweeper, rows, tmp_path, [BITS])]
    assert first == again


def test_the_history_shows_values_the_best_so_far_and_the_baseline(sweeper):
    values = [2.1, 2.3, None, 2.0, 2.05]
    rows = [
        sweeper.row(n, state="done" if v else "pruned", values=[v] if v else None)
        for n, v in enumerate(values)
    ]
    (axes,) = history(parse_rows(rows), GOALS[:1]).axes
    assert line(axes, "finished") == [[0, 2.1], [1, 2.3], [3, 2.0], [4, 2.05]]
    assert line(axes, "best so far") == [[0, 2.1], [1, 2.1], [3, 2.0], [4, 2.0]]
    assert line(axes, "baseline") == [[0, 2.1]]
    assert [x for x, _ in line(axes, "pruned")] == [2]


def test_flops_are_drawn_in_millions(sweeper):
    rows = parse_rows([sweeper.row(n, values=[2.0, 1e6 * (n + 2)]) for n in range(2)])
    axes = history(rows, GOALS).axes[1]
    assert line(axes, "finished") == [[0, 2.0], [1, 3.0]]
    assert axes.get_ylabel() == "flops\nMFLOP per token"


def test_a_trial_that_went_wrong_stands_above_the_axis(sweeper):
    values = [2.0, 2.1, 2.2, 2.3, 2.4, 900.0]
    assert highest_shown(np.array(values)) == 2.4
    assert highest_shown(np.array(values[:5])) == 2.4
    assert highest_shown(np.array([1.0, 1.0, 1.0, 5.0])) == 5.0
    rows = parse_rows([sweeper.row(n, values=[v]) for n, v in enumerate(values)])
    (axes,) = history(rows, GOALS[:1]).axes
    ((number, height),) = line(axes, "above the axis")
    assert number == 5
    assert height == axes.get_ylim()[1] < 3


def test_bars_show_share_chance_and_trials(sweeper):
    rows = parse_rows(sweeper.many(40))
    found = importances(rows, 0)
    short = {one.key: one.key for one in found}
    (axes,) = bars([(GOALS[0], found)], short).axes
    known = [one for one in found if one.share is not None]
    assert [bar.get_width() for bar in axes.patches] == [one.share for one in known]
    assert [x for x, _ in line(axes, "what chance reaches")] == [one.chance for one in known]
    names = [text.get_text() for text in axes.get_yticklabels()]
    stairs = next(one for one in found if one.conditional)
    assert f"{stairs.key} ({stairs.trials} trials)" in names
    assert axes.get_title(loc="left") == f"retrained, {len(done(rows))} trials"


def test_settings_are_laid_along_their_axes_by_what_they_are(sweeper):
    rows = parse_rows(
        [
            sweeper.row(n, params={"c": "ab"[n % 2], "f": 10.0**n, "i": 2 * n, "l": n, "b": n > 2})
            for n in range(5)
        ]
    )
    known = {
        "c": CategoricalDistribution(["b", "a", "never"]),
        "f": FloatDistribution(1, 1e6, log=True),
        "i": IntDistribution(0, 8, step=2),
        "l": IntDistribution(0, 9),
        "b": CategoricalDistribution([True, False]),
    }
    axis = {key: setting(key, key, rows, known) for key in known}
    assert axis["c"].levels == ("b", "a", "never")
    assert axis["c"].places(rows).tolist() == [1, 0, 1, 0, 1]
    assert np.abs(axis["c"].spread(rows, "x") - axis["c"].places(rows)).max() <= 0.3
    assert axis["f"].log
    assert axis["i"].levels == ("0", "2", "4", "6", "8")
    assert axis["b"].levels == ("true", "false")
    unknown = setting("f", "f", rows, {})
    assert (unknown.log, unknown.levels) == (False, ())
    assert setting("c", "c", rows, {}).levels == ("a", "b")


def test_integers_of_many_values_and_of_log_are_numbers(sweeper):
    rows = parse_rows([sweeper.row(n, params={"i": 2**n}) for n in range(12)])
    one = setting("i", "i", rows, {"i": IntDistribution(1, 4096, log=True)})
    assert (one.log, one.levels) == (True, ())
    assert png(slices(rows, [one], 0, GOALS[0]))


def test_a_slice_has_a_panel_per_setting_with_its_trials(sweeper):
    trials = sweeper.many(30)
    rows = parse_rows(trials)
    known = [setting(key, key, rows, {}) for key in ("search.tau.end", "search.tau.stairs")]
    end, stairs = slices(rows, known, 0, GOALS[0]).axes
    finished = sorted(done(rows), key=lambda row: row.number)
    marks = end.collections[0].get_offsets().tolist()
    assert marks == [[row.params["search.tau.end"], row.values[0]] for row in finished]
    active = sum("search.tau.stairs" in row.params for row in finished)
    assert stairs.get_title(loc="left") == f"{active} trials only"
    *_, empty = slices(rows, (known * 3)[:5], 0, GOALS[0]).axes
    assert not empty.get_visible()


def test_the_front_is_drawn_with_its_layouts(sweeper):
    layouts = ["a d", "d d", "i i", "a a"]
    values = [[2.0, 4e6], [2.2, 2e6], [2.5, 1e6], [2.4, 5e6]]
    rows = parse_rows(
        [
            sweeper.row(n, values=v, layout=layout)
            for n, (v, layout) in enumerate(zip(values, layouts, strict=True))
        ]
    )
    (axes,) = pareto(rows, GOALS).axes
    assert sorted(line(axes, "beaten by none")) == [[1.0, 2.5], [2.0, 2.2], [4.0, 2.0]]
    assert line(axes, "beaten") == [[5.0, 2.4]]
    assert line(axes, "baseline") == [[4.0, 2.0]]
    assert {text.get_text() for text in axes.texts} == {"0: ad", "1: dd", "2: ii"}
    twins = [
        sweeper.row(n, values=values[n % 4], layout=layouts[n % 4], network=f"hash {n % 4}")
        for n in range(12)
    ]
    assert [row.number for row in front(parse_rows(twins))] == [0, 1, 2]
    (again,) = pareto(parse_rows(twins), GOALS).axes
    for label in ("beaten by none", "beaten"):
        assert line(again, label) == line(axes, label)
    # The stairs pass below and to the left of no finished trial.
    stairs_N2 = next(one for one in axes.get_lines() if one.get_linestyle() == "-").get_xydata()
    assert [2.0, 2.5] in stairs_N2.tolist()
    assert [4.0, 2.2] in stairs_N2.tolist()


def test_names_of_the_front_do_not_cover_each_other_or_the_stairs(sweeper):
    rows = parse_rows(sweeper.many(40, goals=2))
    (axes,) = pareto(rows, GOALS).axes
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == min(len(front(rows)), 12)
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])


@pytest.mark.parametrize("layouts", [None, "a d i " * 30])
def test_hostile_names_and_three_objectives_are_drawn(sweeper, tmp_path, layouts):
    names = ["$x^", "_a\nb", "\x1b[2J", "文字" * 40]
    space = {
        "a." + "long_" * 30 + "key$": CategoricalDistribution(names),
        "b": CategoricalDistribution([None, True, 3, "3", 0.5]),
        "c": FloatDistribution(0.0, 1.0),
    }
    study = optuna.create_study(directions=["minimize"] * 3)
    rows = []
    for n in range(14):
        params = {key: d.choices[n % len(d.choices)] for key, d in list(space.items())[:2]}
        params["c"] = 0.25
        values = [2.0 + n % 3, 1e6 * (20 - n), 1e6 + n]
        rows.append(sweeper.row(n, params=params, values=values, layout=layouts))
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=space, values=values)
        )
    third = {"name": "parameters", "unit": "parameters"}
    paths = draw_sweep(study, rows, tmp_path, [{"name": "$_{", "unit": "\n"}, FLOPS, third])
    assert len(list(sizes(paths))) == 6


def test_values_that_never_change_are_drawn(sweeper, tmp_path):
    rows = [row | {"values": row["values"] and [2.0]} for row in sweeper.many(16)]
    names = {path.name for path in drawn(sweeper, rows, tmp_path, [BITS])}
    assert names == {"history.png", "importances.png", "slice.png"}
