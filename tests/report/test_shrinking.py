"""What is shown of a model that shrank: its blocks with their prices, and the subsets."""

from pathlib import Path

import pytest

from report.shrinking import prices_figure, read_shrinking, shrinking_section
from tests.runs import write_json

BLOCKS = """\
block,label,kl_nats,nats_more,flops
0,attention,0.5,0.4,300
1,dense,0.0,-0.1,200
3,dense,0.02,0.01,200
"""
HEAD = "layout,kl_nats,above_nearest,above_nearest_error,nats_per_token,latency,flops\n"
ROW = "a i i d,0.25,0.125,0.0625,3.5,2,500\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A parent of three blocks and an idle place, of which one block was dropped."""
    kinds = ("attention", "identity", "identity", "dense")
    write_json(
        tmp_path / "architecture.json", {"name": "s", "blocks": [{"kind": one} for one in kinds]}
    )
    (tmp_path / "architectures").mkdir()
    (tmp_path / "architectures/s-blocks.csv").write_text(BLOCKS)
    (tmp_path / "architectures/s-subsets.csv").write_text(HEAD + ROW * 20)
    return tmp_path


def test_the_figure_shows_what_each_block_is_worth_and_pale_what_was_dropped(folder: Path) -> None:
    found = read_shrinking(folder)
    assert found is not None
    prices, costs = prices_figure(found[0]).axes
    assert [bar.get_width() for bar in prices.patches] == [0.5, 0.001, 0.02]
    assert [bar.get_width() for bar in costs.patches] == [300, 200, 200]
    for axes in (prices, costs):
        assert [bar.get_alpha() for bar in axes.patches] == [1.0, 0.3, 1.0]
        assert [bar.get_y() + bar.get_height() / 2 for bar in axes.patches] == [0, 1, 3]
    names = [label.get_text() for label in prices.get_yticklabels()]
    assert names == ["0 attention", "1 dense", "3 dense"]


def test_the_section_has_the_first_subsets_and_says_how_many_there_are(folder: Path) -> None:
    section = shrinking_section(folder)
    assert section is not None
    assert "20 subsets within the budget" in section.body
    rows = section.body.partition("<tbody>")[2].split("<tr")[1:]
    assert len(rows) == 12
    assert ["class" in row.partition(">")[0] for row in rows] == [True, *[False] * 11]
    for cell in ("aiid", "0.2500", "0.1250", "0.0625", "3.5000", "500"):
        assert f">{cell}</t" in rows[0]


def test_where_nothing_shrank_there_is_no_section(folder: Path) -> None:
    (folder / "architectures/s-subsets.csv").unlink()
    assert shrinking_section(folder) is None
    (folder / "architecture.json").unlink()
    assert shrinking_section(folder) is None
