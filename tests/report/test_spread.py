"""Several searches in one figure: means, ranges, and what is not put together."""

import numpy as np
import pytest
from matplotlib.colors import same_color

from report.curves import curve_spread
from report.panels import pi_spread
from report.run_files import Trajectory, read_metrics, read_trajectory
from report.search_figures import comparable_searches, write_spread_figures


def trajectory(pi_NLC: np.ndarray) -> Trajectory:
    steps = len(pi_NLC)
    return Trajectory(
        step_N=np.arange(1, steps + 1),
        pi_NLC=pi_NLC,
        tau_N=np.ones(steps),
        labels=("attention", "dense"),
        alpha_start=0,
    )


def test_lines_are_means_and_bands_are_ranges() -> None:
    first_NL = np.random.default_rng(0).uniform(0.2, 0.8, size=(3, 7, 2))
    pi_RNLC = np.stack([first_NL, 1 - first_NL], axis=-1)
    figure = pi_spread([trajectory(pi_NLC) for pi_NLC in pi_RNLC])
    assert len(figure.axes) == 2
    for slot, axes in enumerate(figure.axes):
        lines = [line for line in axes.get_lines() if len(line.get_xdata()) == 7]
        for index, line in enumerate(lines):
            assert line.get_ydata() == pytest.approx(pi_RNLC[:, :, slot, index].mean(axis=0))
        assert len(lines) == len(axes.collections) == 2
        for index, band in enumerate(axes.collections):
            (path,) = band.get_paths()
            for step in range(1, 8):
                drawn = path.vertices[path.vertices[:, 0] == step][:, 1]
                pi_R = pi_RNLC[:, step - 1, slot, index]
                assert drawn.min() == pytest.approx(pi_R.min())
                assert drawn.max() == pytest.approx(pi_R.max())
        mean, votes = pi_RNLC[:, -1, slot, 0].mean(), int((pi_RNLC[:, -1, slot, 0] > 0.5).sum())
        shown = (
            f"attention {mean:.2f}, {votes}" if mean > 0.5 else f"dense {1 - mean:.2f}, {3 - votes}"
        )
        assert axes.get_title("left") == f"slot {slot}: {shown} of 3"


def test_curves_have_the_steps_that_all_searches_have(make) -> None:
    frames = []
    for shift in (0, 10):
        path = make.metrics_file(make.run / f"{shift}")
        text = path.read_text().replace("270.0", str(270.0 - shift))
        path.write_text(text if shift else text.replace('"step": 59', '"step": 60'))
        frames.append(read_metrics(path))
    axes = curve_spread(frames, 0).axes[0]
    for line in axes.get_lines():
        assert list(line.get_xdata()) == [30]
        assert list(line.get_ydata()) == [265]
    assert not same_color(axes.get_lines()[0].get_color(), axes.get_lines()[1].get_color())


def test_the_one_hot_band_begins_where_alpha_first_moved(make) -> None:
    frames = [read_metrics(make.metrics_file(make.run / name)) for name in "ab"]
    lines = curve_spread(frames, 30).axes[0].get_lines()
    assert [list(line.get_xdata()) for line in lines] == [[30, 59], [59]]


def test_searches_of_other_slots_labels_or_lengths_stay_apart(make) -> None:
    make.search(seed=0, steps=20)
    assert write_spread_figures(make.run) == []
    make.search(seed=1, steps=20)
    make.search(seed=2, steps=12)
    make.search(seed=3, steps=20, slots=3)
    make.search(seed=10, steps=20, labels=("attention", "dense", "wide"))
    assert [folder.name for folder in comparable_searches(make.run)] == ["seed-0", "seed-1"]
    written = write_spread_figures(make.run)
    assert [path.name for path in written] == ["pi_seeds.png", "curves_seeds.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in write_spread_figures(make.run)] == before
    assert read_trajectory(make.run / "search/seed-0/pi.npz").moves
