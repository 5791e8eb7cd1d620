"""The figure and the section of what a derivation trained."""

import json
from pathlib import Path

import numpy as np
import pytest

from report.derivation import (
    TrainingTables,
    read_trainings,
    trainings_figure,
    trainings_section,
    trainings_sentence,
    write_trainings_figure,
)

HEAD = (
    "layout,length,seed,valid_nats,expected_nats,expected_sd,rule,flops_per_token,foreseen_nats,"
    "answer\n"
)
ROWS = """\
a a d,half,0,4.6,4.30,0.02,attention blocks first: 2,900,,
a d d,half,0,4.5,4.21,0.01,,700,,yes
d a i,half,0,inf,4.50,0.10,,500,,
a d d,full,1,4.20,4.21,0.01,,700,4.31,yes
a a d,full,1,4.31,4.30,0.02,attention blocks first: 2,900,4.39,
a d d,full,2,4.22,4.21,0.01,,700,4.31,yes
a a d,full,2,4.33,4.30,0.02,attention blocks first: 2,900,4.39,
"""
FRONT = """\
layout,flops_per_token,expected_nats,expected_sd
d i i,300,4.8,0.2
a d d,700,4.21,0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "architectures").mkdir()
    (tmp_path / "architecture.json").write_text(json.dumps({"name": "predictor-0"}))
    (tmp_path / "architectures/predictor-0.csv").write_text(HEAD + ROWS)
    (tmp_path / "architectures/predictor-0-front.csv").write_text(FRONT)
    return tmp_path


def test_the_figure_shows_the_finals_and_the_front_and_the_table_what_was_foreseen(
    folder: Path,
) -> None:
    trainings = read_trainings(folder)
    assert trainings is not None
    assert [*trainings.full.index] == ["a d d", "a a d"], "the answer first"
    (axes,) = trainings_figure(trainings).axes
    trained = next(line for line in axes.lines if line.get_label() == "trained in full")
    np.testing.assert_allclose(trained.get_xydata(), [[700, np.exp(4.21)], [900, np.exp(4.32)]])
    (answer,) = (line for line in axes.lines if line.get_label() == "chosen layout")
    assert answer.get_xydata().tolist() == [[700, np.exp(4.21)]]
    assert {text.get_text() for text in axes.texts} == {"add", "aad"}
    rules = TrainingTables(trainings.rows[trainings.rows["length"] == "full"], trainings.front)
    (axes,) = trainings_figure(rules).axes
    trained = next(line for line in axes.lines if line.get_label() == "trained in full")
    np.testing.assert_allclose(trained.get_ydata(), np.exp([4.21, 4.30]), err_msg="seeds differ")
    section = trainings_section(trainings)
    assert "<td>4.3100</td><td>4.2100</td><td>4.2100</td><td>2</td>" in section.body
    assert write_trainings_figure(folder).read_bytes().startswith(b"\x89PNG")


def test_the_answer_is_what_was_chosen_though_more_were_expected_of_another(folder: Path) -> None:
    """Of another one a final diverged, and it was expected to be as bad as the worst alone."""
    rows = ROWS.replace(",yes", ",").replace("2,900,4.39,", "2,900,4.39,yes")
    (folder / "architectures/predictor-0.csv").write_text(HEAD + rows)
    trainings = read_trainings(folder)
    assert trainings is not None
    assert [*trainings.full.index] == ["a a d", "a d d"]


def test_how_many_trainings_chose_it_and_which_layout_is_next_is_one_sentence(folder: Path) -> None:
    trainings = read_trainings(folder)
    assert trainings is not None
    assert trainings_sentence(trainings) == (
        "7 trainings of 3 layouts chose it by validation loss. The best other, a a d, is expected "
        "+0.0900 nats/token above it."
    )


def test_where_nothing_was_trained_there_is_neither(folder: Path) -> None:
    assert read_trainings(folder.parent) is None
    (folder / "architectures/predictor-0-front.csv").unlink()
    assert read_trainings(folder) is None
    (folder / "architecture.json").unlink()
    assert read_trainings(folder) is None


def test_without_probes_the_table_has_no_place_for_what_they_foresaw(folder: Path) -> None:
    path = folder / "architectures/predictor-0.csv"
    lines = [line for line in path.read_text().splitlines() if ",half," not in line]
    once = "a d a,full,1,4.4,4.19,0.02,attention blocks spread: 2,800,"
    path.write_text("\n".join([*lines, once]) + "\n")
    trainings = read_trainings(folder)
    assert trainings is not None
    assert trainings.full.index[0] == "a d d", "what was trained once is no answer"
    section = trainings_section(trainings)
    assert "foreseen" not in section.body
    assert "the best with further ones" in section.body
    single = TrainingTables(trainings.rows[trainings.rows["seed"] == 1], trainings.front)
    assert "further" not in trainings_section(single).body
