"""A sweep's figures show its numbers; importances find what was planted, and little elsewhere."""

import struct

import matplotlib as mpl
import numpy as np
import pytest

from report.sweep.figures import draw_sweep, highest_shown, history, pareto, slices
from report.sweep.importance import share_explained
from report.sweep.trials import done
from tests.report.conftest import BITS, FLOPS, SPACE

GOALS = [BITS, FLOPS]
pytestmark = pytest.mark.filterwarnings("error")


def sizes(paths):
    """Width and height of PNG files in pixels."""
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        yield struct.unpack(">II", content[16:24])


def drawn(rows, folder, objectives):
    return draw_sweep(rows, objectives, SPACE, folder)


def marks(axes, label):
    """Places of the lines and dots of a label."""
    of = {one.get_label(): one.get_xydata() for one in axes.get_lines()}
    of |= {one.get_label(): one.get_offsets() for one in axes.collections}
    return np.asarray(of[label]).tolist()


def test_the_figures_have_a_sensible_size_and_the_same_bytes_again(sweeper, tmp_path):
    rows, before = sweeper.many(30, goals=2), dict(mpl.rcParams)
    paths = drawn(rows, tmp_path, GOALS)
    assert {path.name for path in paths} == {
        "history.png", "pareto.png", "slice-1.png", "slice-2.png",
    }  # fmt: skip
    for width, height in sizes(paths):
        assert 900 <= width <= 1500
        assert 250 <= height <= 1500
    first = [path.read_bytes() for path in paths]
    assert dict(mpl.rcParams) == before
    with mpl.rc_context({"font.size": 20, "xtick.major.size": 20}):
        assert [path.read_bytes() for path in drawn(rows, tmp_path, GOALS)] == first


def test_the_history_shows_values_the_best_so_far_and_the_baseline(sweeper):
    values = [2.1, 2.3, None, 2.0, 2.05]
    rows = [
        sweeper.row(n, state="done" if v else "pruned", values=[v] if v else None)
        for n, v in enumerate(values)
    ]
    (axes,) = history(rows, [BITS]).axes
    assert marks(axes, "finished trials") == [[0, 2.1], [1, 2.3], [3, 2.0], [4, 2.05]]
    assert marks(axes, "best so far") == [[0, 2.1], [1, 2.1], [3, 2.0], [4, 2.0]]
    assert marks(axes, "the file's own values") == [[0, 2.1]]
    assert [x for x, _ in marks(axes, "failed or pruned")] == [2]
    flops = [sweeper.row(n, values=[2.0, 1e6 * (n + 2)]) for n in range(2)]
    axes = history(flops, GOALS).axes[1]
    assert marks(axes, "finished trials") == [[0, 2e6], [1, 3e6]]
    assert axes.get_ylabel() == "flops\nFLOPs per token"


def test_a_trial_that_went_wrong_stands_on_the_upper_edge(sweeper):
    values = [2.0, 2.1, 2.2, 2.3, 2.4, 900.0]
    assert highest_shown(np.array(values)) == 2.4
    assert highest_shown(np.array(values[:5])) == 2.4
    assert highest_shown(np.array([1.0, 1.0, 1.0, 5.0])) == 5.0
    rows = [sweeper.row(n, values=[v]) for n, v in enumerate(values)]
    (axes,) = history(rows, [BITS]).axes
    assert marks(axes, "finished trials")[5] == [5, axes.get_ylim()[1]]
    assert axes.get_ylim()[1] < 3


def test_a_slice_has_a_panel_per_setting_with_its_trials_what_explains_most_first(sweeper):
    finished = sorted(done(sweeper.many(30)), key=lambda row: row.number)
    panels = {axes.get_xlabel(): axes for axes in slices(finished, SPACE, 0, BITS).axes}
    first, *_ = panels
    assert first == "model.n_blocks"
    end, stairs, schedule = (panels[f"tau.{key}"] for key in ("end", "stairs", "schedule"))
    wanted = [[row.params["search.tau.end"], row.values[0]] for row in finished]
    assert marks(end, "finished trials") == wanted
    assert end.get_xscale() == "log"
    share, chance = share_explained(finished, "search.tau.end", 0)
    assert end.get_title(loc="left") == f"explains {share:.0%} (chance {chance:.0%})"
    active = sum("search.tau.stairs" in row.params for row in finished)
    assert stairs.get_title(loc="left") == f"{active} trials only"
    assert [tick.get_text() for tick in schedule.get_xticklabels()] == ["linear", "cosine", "step"]
    at = [x for x, _ in marks(schedule, "finished trials")]
    assert at == [("linear", "cosine", "step").index(row.params["search.tau.schedule"])
                  for row in finished]  # fmt: skip
    assert not any(axes.get_visible() for name, axes in panels.items() if not name)


def test_the_front_is_drawn_with_its_numbers(sweeper):
    values = [[2.0, 4e6], [2.2, 2e6], [2.5, 1e6], [2.4, 5e6]]
    rows = [sweeper.row(n, values=values[n % 4], network=f"hash {n % 4}") for n in range(12)]
    (axes,) = pareto(rows, GOALS).axes
    assert sorted(marks(axes, "Pareto front")) == [[1e6, 2.5], [2e6, 2.2], [4e6, 2.0]]
    assert len(marks(axes, "finished trials")) == 12
    assert marks(axes, "the file's own values") == [[4e6, 2.0]]
    assert {text.get_text() for text in axes.texts} == {f"trial {n}\nadi" for n in range(3)}


def rows_of(sweeper, params, values):
    pairs = enumerate(zip(params, values, strict=True))
    return [sweeper.row(n, params=p, values=[float(v)]) for n, (p, v) in pairs]


def slow_share(group_N, value_N):
    """The same by definition, group by group, with ranks by counting."""
    rank_N = np.array(
        [sum(v < w for v in value_N) + sum(v == w for v in value_N) / 2 for w in value_N]
    )
    within = sum(
        sum((rank_N[group_N == group] - rank_N[group_N == group].mean()) ** 2)
        for group in set(group_N.tolist())
    )
    free = len(value_N) - len(set(group_N.tolist()))
    return max(0.0, 1 - (within / free) / rank_N.var(ddof=1))


@pytest.mark.parametrize("seed", range(3))
def test_a_share_is_what_the_definition_gives(sweeper, seed):
    generator = np.random.default_rng(seed)
    choice_N = generator.integers(0, 3, 40)
    value_N = (0.7 * choice_N + generator.normal(size=40)).round(1)  # with ties
    params = [{"k": "abc"[c], "n": n} for n, c in enumerate(choice_N)]
    share, _ = share_explained(rows_of(sweeper, params, value_N), "k", 0)
    assert share == pytest.approx(slow_share(choice_N, value_N), abs=1e-12)


def test_what_was_planted_explains_most_and_the_rest_is_as_chance_has_it(sweeper):
    generator = np.random.default_rng(0)
    planted_N, other_N = generator.uniform(size=(2, 60))
    value_N = (planted_N - 0.5) ** 2 + 0.01 * generator.normal(size=60)
    value_N[7] = 1e6  # a trial that went wrong
    params = [{"a": float(o), "b": float(p)} for o, p in zip(other_N, planted_N, strict=True)]
    rows = rows_of(sweeper, params, value_N)
    share, chance = share_explained(rows, "b", 0)
    assert share > max(0.7, chance)
    assert share_explained(rows, "a", 0)[0] < 0.2


def test_trials_of_equal_settings_are_no_more_evidence_than_one(sweeper):
    """A sampler repeats the points of a small space; each repetition has the value of the first."""
    generator = np.random.default_rng(0)
    passed = 0
    for _ in range(60):
        noise = generator.normal(size=(3, 8))
        points = generator.integers(0, (3, 8), size=(48, 2))
        params = [{"a": int(a), "b": int(b)} for a, b in points]
        rows = rows_of(sweeper, params, [noise[a, b] for a, b in points])
        for key in "ab":
            share, chance = share_explained(rows, key, 0)
            passed += share > chance
    assert passed <= 12


def test_a_conditional_setting_counts_where_it_is_active(sweeper):
    generator = np.random.default_rng(0)
    params = [{"kind": "x", "only": n % 2} if n < 24 else {"kind": "y"} for n in range(40)]
    value_N = np.where(np.arange(40) < 24, 5.0 + np.arange(40) % 2, 50.0)
    value_N = value_N + 0.1 * generator.normal(size=40)
    assert share_explained(rows_of(sweeper, params, value_N), "only", 0)[0] > 0.7


def test_too_few_trials_and_settings_that_never_change_tell_nothing(sweeper):
    params = [{"k": n % 3, "same": 1} for n in range(10)]
    rows = rows_of(sweeper, params, range(10))
    assert share_explained(rows, "k", 0) is not None
    assert share_explained(rows[:9], "k", 0) is None
    assert share_explained(rows, "same", 0) is None
    assert share_explained(rows_of(sweeper, params, [1.0] * 10), "k", 0) is None


def test_numbers_of_many_values_fall_into_bins_of_equal_size(sweeper):
    """Else each would be a group of its own, within which nothing is seen."""
    rows = rows_of(sweeper, [{"k": float(n)} for n in range(40)], range(40))
    binned = rows_of(sweeper, [{"k": n // 8} for n in range(40)], range(40))
    assert share_explained(rows, "k", 0)[0] == pytest.approx(0.96, abs=0.01)
    params = [{**row.params, "n": row.number} for row in binned]
    binned = rows_of(sweeper, params, range(40))
    assert share_explained(rows, "k", 0) == share_explained(binned, "k", 0)
