"""Run files: what was written comes back, damage is named; which rows of many are shown."""

import numpy as np
import pytest

from report.run_files import (
    frame_rows,
    read_json,
    read_metrics,
    read_trajectory,
    seed_folders,
    thin,
)


def test_the_trajectory_comes_back(make):
    path = make.pi_file(make.run, slots=4, steps=9)
    trajectory = read_trajectory(path)
    with np.load(path) as written:
        assert np.array_equal(trajectory.pi_NLC, written["pi"])
        assert np.array_equal(trajectory.tau_N, written["tau"])
    assert trajectory.labels == ("attention", "dense", "identity")
    assert (trajectory.alpha_start, trajectory.moves) == (3, True)


def test_a_search_that_never_reached_alpha_does_not_move(make):
    path = make.pi_file(make.run, steps=9)
    with np.load(path) as written:
        arrays = dict(written)
    np.savez(path, **{**arrays, "alpha_start": np.int64(10)})
    assert not read_trajectory(path).moves


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "body", "pickle"])
def test_a_damaged_npz_is_refused_by_name(make, damage):
    path = make.pi_file(make.run)
    whole = path.read_bytes()
    middle = len(whole) // 3
    np.savez(path, step=np.array([{"a": 1}], dtype=object))
    content = {
        "pickle": path.read_bytes(),
        "cut": whole[: len(whole) // 2],
        "text": b"not a zip",
        "empty": b"",
        "body": whole[:middle] + b"\xff\x00" * 50 + whole[middle + 100 :],
    }
    path.write_bytes(content[damage])
    with pytest.raises(ValueError, match=r"pi\.npz: damaged"):
        read_trajectory(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pi": np.ones((2, 3), np.float32)}, "pi has shape"),
        ({"labels": np.array(["a", "b"])}, "labels has shape"),
        ({"tau": np.ones(3, np.float32)}, "tau has shape"),
        ({"pi": np.full((60, 6, 3), 0.5, np.float32)}, "sums to 1.5"),
        ({"pi": np.full((60, 6, 3), np.nan, np.float32)}, "pi holds nan"),
        ({"tau": None}, "lacks tau"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(make, change, message):
    path = make.pi_file(make.run)
    with np.load(path) as written:
        arrays = {**written, **change}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises(ValueError, match=message) as caught:
        read_trajectory(path)
    assert str(path) in str(caught.value)


def test_metrics_come_back_as_rows(make):
    frame = read_metrics(make.metrics_file(make.run))
    assert list(frame["kind"]).count("train") == 6
    onehot = frame[(frame["kind"] == "valid") & (frame["net"] == "onehot")]
    assert onehot["step"].tolist() == [30, 59]


def test_a_torn_last_line_is_left_out(make):
    path = make.metrics_file(make.run)
    whole = len(read_metrics(path))
    with path.open("ab") as file:
        file.write('{"kind": "train", "step": 60, "loss_nats": 5.ä'.encode()[:-1])
    assert len(read_metrics(path)) == whole


@pytest.mark.parametrize(
    ("second", "message"),
    [('{"kind": "tr', "not JSON"), ('{"step": 2}', "expected an object with kind")],
)
def test_a_damaged_line_further_up_is_refused_by_line(make, second, message):
    path = make.run / "metrics.jsonl"
    path.write_text(f'{{"kind": "train", "step": 1}}\n{second}\n{{"kind": "train", "step": 3}}\n')
    with pytest.raises(ValueError, match=rf"metrics\.jsonl:2: {message}"):
        read_metrics(path)


def test_an_empty_metrics_file_has_no_rows(make):
    path = make.run / "metrics.jsonl"
    path.write_text("")
    assert len(read_metrics(path)) == 0
    assert list(read_metrics(path).columns) == ["kind", "step"]


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_json_that_is_no_object_is_refused_by_name(make, text):
    path = make.run / "result.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"result\.json"):
        read_json(path)


def test_seeds_come_in_the_order_of_their_numbers(make):
    for name in ("seed-10", "seed-2", "seed-0", "seed-x", "other"):
        (make.run / name).mkdir()
    assert [path.name for path in seed_folders(make.run)] == ["seed-0", "seed-2", "seed-10"]
    assert seed_folders(make.run / "absent") == []


@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        (5, 10, [0, 1, 2, 3, 4]),
        (5, 5, [0, 1, 2, 3, 4]),
        (5, 3, [0, 2, 4]),
        (11, 3, [0, 5, 10]),
        (5, 1, [4]),
        (1, 7, [0]),
        (0, 7, []),
    ],
)
def test_thinning_keeps_both_ends(count, most, expected):
    assert thin(count, most).tolist() == expected


def test_thinning_never_gives_more_than_asked():
    for most in range(1, 50):
        rows = thin(1237, most)
        assert len(rows) == most
        assert rows[-1] == 1236


@pytest.mark.parametrize(
    ("steps", "alpha_start", "most", "expected"),
    [
        (100, 60, 6, [0, 60, 70, 80, 89, 99]),  # the first, then those in which alpha moves
        (100, 500, 3, [0, 50, 99]),  # it never moves
        (1, 0, 40, [0]),
    ],
)
def test_frames_begin_with_the_first_step_and_skip_the_frozen_ones(
    steps, alpha_start, most, expected
):
    assert frame_rows(np.arange(steps), alpha_start, most).tolist() == expected
