"""The figure and the section of a front."""

import json
from pathlib import Path

import pytest

from report.pareto import pareto_figure, pareto_section, read_front, write_pareto_figure

HEAD = "rule,front,layout,cost,times_reference,nats_per_token,standard_error\n"
ROWS = """\
,1,i i i i,0.44,0.13,8.9,0.1
,1,d i i i,1.0,0.3,4.8,0.1
,0,i a i i,1.5,0.4,4.9,0.1
,1,a i d i,2.0,0.6,4.7,0.1
par,0,a d d d,2.9,0.85,4.71,0.1
interleaved,1,a d a d,3.4,1.0,4.65,0.1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pareto.csv").write_text(HEAD + ROWS)
    summary = {"cost": "latency", "unit": "ms", "reference": "a d a d", "front": ["x"]}
    (tmp_path / "pareto.json").write_text(json.dumps(summary))
    return tmp_path


def test_the_figure_shows_front_and_rules_and_says_what_lies_above(folder: Path) -> None:
    table = read_front(folder)
    assert table is not None
    axes = pareto_figure(table).axes[0]
    assert axes.get_xlabel() == "latency (ms)"
    texts = {text.get_text() for text in axes.texts}
    assert {"par", "interleaved", "diii", "aidi"} <= texts
    assert "iiii" not in texts
    assert axes.get_ylim()[1] < 8.9
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["beaten", "beaten by none of 6", "rules"]
    assert axes.get_title(loc="left") == "lower and further left is better; 1 layout is above"
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert len(set(ticks)) == len(ticks), "no two alike"
    path = write_pareto_figure(folder)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_section_has_front_and_rules_alone(folder: Path) -> None:
    section = pareto_section(folder).body
    assert "a d d d" in section
    assert "i a i i" not in section
    assert "x a d a d" in section


def test_the_reference_is_always_in_the_figure(folder: Path) -> None:
    path = folder / "pareto.csv"
    path.write_text(
        path.read_text().replace(
            "interleaved,1,a d a d,3.4,1.0,4.65", "interleaved,0,a d a d,3.4,1.0,7.9"
        )
    )
    table = read_front(folder)
    assert table is not None
    axes = pareto_figure(table).axes[0]
    assert 7.9 < axes.get_ylim()[1] < 8.9


def test_without_a_front_there_is_no_section(tmp_path: Path) -> None:
    assert pareto_section(tmp_path) is None
    (tmp_path / "pareto.csv").write_text(HEAD + ROWS)
    assert pareto_section(tmp_path) is None


def test_a_broken_table_is_named(folder: Path) -> None:
    path = folder / "pareto.csv"
    path.write_text(path.read_text().replace("0.44", "cheap", 1))
    with pytest.raises(ValueError, match=f"^{path}: broken"):
        read_front(folder)
