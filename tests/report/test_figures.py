"""Figures show the numbers of the files, of one search and of several, without a warning."""

import matplotlib
import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from report import plotting, searches
from report.comparison_figure import _MARKS
from report.curves import curves, schedule, validation_curves
from report.pi_figures import MOST_FRAMES, heat_map, line_plots, pi_grid, write_animation
from report.run_files import Trajectory, read_metrics, read_trajectory
from utils.text import compact

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.figures]
ALL = {"pi_final.png", "pi.gif", "pi_lines.png", "schedule.png", "curves.png"}


@pytest.mark.parametrize(("slots", "steps", "frames"), [(6, 12, 10), (1, 1, 1), (17, 3, 3)])
def test_every_figure_is_written(make, slots, steps, frames):
    folder = make.search(slots=slots, steps=steps)
    written = searches.write_search_figures(folder)
    assert {path.name for path in written} == ALL
    assert {path.name for path in (folder / "figures").iterdir()} == ALL
    for path in written:
        with Image.open(path) as image:
            assert min(image.size) > 100, path
            # 12 steps of which alpha moves in the last 9, and the first step.
            assert path.suffix != ".gif" or image.n_frames == frames


def test_figures_are_the_same_bytes_again_whatever_the_user_s_settings(make):
    odd = ("dense", r"$\bad$", "\N{CJK UNIFIED IDEOGRAPH-5C64}", "_odd")
    shown = read_trajectory(make.pi_file(make.run, slots=1, steps=2, labels=odd))
    animation = write_animation(shown, make.run / "pi.gif").read_bytes()
    for draw in (heat_map, line_plots, schedule):
        expected = plotting.png(draw(shown))
        with matplotlib.rc_context({"font.size": 20, "xtick.top": True, "axes.grid": True}):
            assert plotting.png(draw(shown)) == expected
            assert write_animation(shown, make.run / "pi.gif").read_bytes() == animation
            assert matplotlib.rcParams["font.size"] == 20


def test_without_files_there_are_no_figures(make):
    assert searches.write_search_figures(make.run) == []
    make.metrics_file(make.run)
    assert [p.name for p in searches.write_search_figures(make.run)] == ["curves.png"]


def test_heat_map_shows_the_last_pi(make):
    shown = read_trajectory(make.pi_file(make.run, slots=18, steps=5))
    figure = heat_map(shown)
    meshes = [axes.collections[0] for axes in figure.axes[:2]]
    assert np.array_equal(np.hstack([mesh.get_array() for mesh in meshes]), shown.pi_NLC[-1].T)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert sorted(texts) == sorted(f"{value:.2f}" for value in shown.pi_NLC[-1].flat)


def test_line_plots_have_a_panel_per_slot_and_a_line_per_candidate(make):
    shown = read_trajectory(make.pi_file(make.run, slots=5, steps=8))
    panels = line_plots(shown).axes
    assert len(panels) == 5
    for slot, axes in enumerate(panels):
        uniform, start, *candidates = axes.get_lines()
        assert uniform.get_ydata() == pytest.approx([1 / 3, 1 / 3])
        assert start.get_xdata() == [3, 3]
        drawn = np.stack([line.get_ydata() for line in candidates], axis=1)
        assert np.array_equal(drawn, shown.pi_NLC[:, slot])


def test_the_schedule_shows_tau_entropy_and_margins(make):
    shown = read_trajectory(make.pi_file(make.run, slots=2, steps=8))
    tau, entropy, lead = schedule(shown).axes
    assert np.array_equal(tau.get_lines()[0].get_ydata(), shown.tau_N)
    assert entropy.get_lines()[0].get_ydata()[0] == pytest.approx(100)
    last = np.sort(shown.pi_NLC[-1].astype(float), axis=1)
    margins = 100 * (last[:, -1] - last[:, -2])
    assert lead.get_lines()[0].get_ydata()[-1] == pytest.approx(margins.mean())
    assert lead.get_lines()[1].get_ydata()[-1] == pytest.approx(margins.min())


def test_an_animation_of_at_most_forty_frames_rests_on_the_last_one(make):
    shown = read_trajectory(make.pi_file(make.run, slots=1, steps=400, labels=("a", "b")))
    path = write_animation(shown, make.run / "pi.gif")
    with Image.open(path) as image:
        assert image.n_frames == MOST_FRAMES == 40
        assert image.info["loop"] == 0
        assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
        image.seek(39)
        assert image.info["duration"] > 2000
        last = image.convert("RGB")
    # The upper left corners of the two cells, away from their numbers.
    found = [last.getpixel((155, 52)), last.getpixel((155, 88))]
    expected = colormaps[plotting.PI_MAP](shown.pi_NLC[-1, 0], bytes=True)[:, :3]
    assert np.array(found) == pytest.approx(expected.astype(int), abs=8)


def test_curves_draw_training_and_both_nets(make):
    metrics = read_metrics(make.metrics_file(make.run))
    lines = {line.get_label(): line for line in curves(metrics).axes[0].get_lines()}
    training = lines.pop("training, the network of each step")
    assert training.get_ydata().tolist() == [400, 390, 380, 370, 360, 350]
    assert lines.pop("validation, mixture of all kinds").get_xdata().tolist() == [30, 59]
    assert lines.pop("validation, likeliest kind of each block").get_xdata().tolist() == [30, 59]
    assert not lines


def test_the_chosen_layout_has_its_colour_wherever_it_stands(make):
    metrics = read_metrics(make.metrics_file(make.run, nets=("model",)))
    for names in (("argmax-0", "par-5", "random-0"), ("par-5", "random-0", "argmax-0")):
        axes = validation_curves({name: [metrics] for name in names}, "argmax-0").axes[0]
        found = {line.get_label(): line.get_color() for line in axes.get_lines()}
        assert found["argmax-0, chosen"] == _MARKS["chosen"][1]
        assert len(set(found.values())) == 3


def test_candidates_that_stand_level_are_no_choice():
    grid = pi_grid(2, ("dense", "attention", "identity"))
    grid.show(np.array([[1, 1, 1], [1, 2, 0]]) / 3, "", only_likeliest=True)
    shown = [[text.get_visible() for text in slot] for slot in grid.text_LC]
    weights = [[text.get_fontweight() for text in slot] for slot in grid.text_LC]
    assert shown == [[True] * 3, [False, True, False]]
    assert weights == [["normal"] * 3, ["normal", "bold", "normal"]]
    level = Trajectory(np.array([1]), np.full((1, 1, 3), 1 / 3), np.ones(1), ("a", "b", "c"), 0)
    assert line_plots(level).axes[0].get_title(loc="left") == "block 0"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (999_600, "1.00M"), (12_345_678, "12.3M"), (99_960_000, "100M")],
)
def test_counts_are_shown_in_three_digits(value, text):
    assert compact(value) == text


def test_lines_are_means_and_bands_are_ranges():
    first_NL = np.random.default_rng(0).uniform(0.2, 0.8, size=(3, 7, 2))
    pi_RNLC = np.stack([first_NL, 1 - first_NL], axis=-1)
    of_seeds = [
        Trajectory(np.arange(1, 8), pi_NLC, np.ones(7), ("attention", "dense"), alpha_start=0)
        for pi_NLC in pi_RNLC
    ]
    figure = line_plots(*of_seeds)
    assert len(figure.axes) == 2
    for slot, axes in enumerate(figure.axes):
        lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 7]
        assert len(lines) == len(axes.collections) == 2
        for index, (line, band) in enumerate(zip(lines, axes.collections, strict=True)):
            pi_RN = pi_RNLC[:, :, slot, index]
            assert line.get_ydata() == pytest.approx(pi_RN.mean(axis=0))
            drawn = band.get_paths()[0].vertices
            for step in range(1, 8):
                values = drawn[drawn[:, 0] == step][:, 1]
                ends = pi_RN[:, step - 1].min(), pi_RN[:, step - 1].max()
                assert (values.min(), values.max()) == pytest.approx(ends)
        last_RC = pi_RNLC[:, -1, slot]
        most = int(last_RC.mean(axis=0).argmax())
        votes = int((last_RC.argmax(axis=1) == most).sum())
        words = f"{of_seeds[0].labels[most]} {last_RC.mean(axis=0)[most]:.2f}, {votes} of 3"
        assert axes.get_title("left") == f"block {slot}: {words}"


def test_searches_of_other_slots_or_lengths_stay_apart(make):
    sizes = {0: {"steps": 4}, 1: {"steps": 4}, 2: {"steps": 3}, 3: {"steps": 4, "slots": 3}}
    folders = [make.search(seed=seed, **of) for seed, of in sizes.items()]
    known = {folder: read_trajectory(folder / "pi.npz") for folder in folders}
    together = searches.comparable({**known, make.run: None})
    assert list(together) == folders[:2]
    searches.search_sections(together)
    figures = make.run / "search/figures"
    assert (figures / "pi_seeds.png").read_bytes().startswith(b"\x89PNG")
