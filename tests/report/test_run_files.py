"""Run files: what was written comes back; which rows of many are shown."""

import numpy as np
import pytest

from report.run_files import frame_rows, read_metrics, seed_folders, thin


def test_metrics_come_back_as_rows_without_a_torn_last_line(make):
    path = make.metrics_file(make.run)
    with path.open("ab") as file:
        file.write('{"kind": "train", "step": 60, "loss_nats": 5.ä'.encode()[:-1])
    frame = read_metrics(path)
    assert list(frame["kind"]).count("train") == 6
    onehot = frame[(frame["kind"] == "valid") & (frame["net"] == "onehot")]
    assert onehot["step"].tolist() == [30, 59]
    path.write_text("")
    assert list(read_metrics(path).columns) == ["kind", "step"]


def test_seeds_come_in_the_order_of_their_numbers(make):
    for name in ("seed-10", "seed-2", "seed-0", "other"):
        (make.run / name).mkdir()
    assert [path.name for path in seed_folders(make.run)] == ["seed-0", "seed-2", "seed-10"]
    assert seed_folders(make.run / "absent") == []


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [(5, 10, [0, 1, 2, 3, 4]), (5, 3, [0, 2, 4]), (1, 7, [0]), (0, 7, [])],
)
def test_thinning_keeps_both_ends(count, most, expected):
    assert thin(count, most).tolist() == expected
    assert len(thin(1237, 49)) == 49


@pytest.mark.parametrize(
    ("steps", "alpha_start", "most", "expected"),
    [
        (100, 60, 6, [0, 60, 70, 80, 89, 99]),  # the first, then those in which alpha moves
        (100, 500, 3, [0]),  # it never moves
        (1, 0, 40, [0]),
    ],
)
def test_frames_begin_with_the_first_step_and_skip_the_frozen_ones(
    steps, alpha_start, most, expected
):
    assert frame_rows(np.arange(steps), alpha_start, most).tolist() == expected
