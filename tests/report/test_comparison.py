"""The table and the figure of a comparison show the numbers of its files."""

import json

import numpy as np
import pytest
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from report.comparison import html_table, read_comparison, text_table
from report.comparison_figure import scatter
from report.plotting import png
from utils.text import layout_title


def row(name="par-5", layout="a d", flops="1e6", latency="", bits="2.0", role="baseline"):
    return f"{name},{layout},2,1000,{flops},{latency},4.0,54.6,{bits},,{role},,,,\n"


def test_the_text_table_shows_the_numbers(make):
    lines = text_table(read_comparison(make.comparison())).splitlines()
    assert lines[0].split() == [
        "layout", "ppl", "ppl", "loss", "bits", "latency", "latency", "FLOPs", "params", "matched",
    ]  # fmt: skip
    assert lines[1].split() == [
        "id", "/token", "(rel.)", "nats/token", "/byte", "ms", "(rel.)", "/token",
    ]  # fmt: skip
    assert lines[3] == "2 attention, 3 feed-forward, mixed: adadid"
    assert lines[4].split() == [
        "argmax-0", "60.34", "-", "4.1000", "2.0500", "3.46", "-", "2.41M", "1.23M", "-",
    ]  # fmt: skip
    assert lines[5] == "interleaved (3 attention, 3 feed-forward): adadad"
    assert lines[6].split() == [
        "interleaved", "61.56", "-", "4.1200", "2.0561", "-", "-", "2.81M", "1.30M", "-",
    ]  # fmt: skip
    assert lines[8:11] == [
        "Each result is one seed, on test text. (rel.) means relative to interleaved.",
        "The column matched names the costs that are within 3% of the chosen layout's.",
        "A layout lists its blocks from the input to the output: a is attention, d is "
        "feed-forward, i is identity.",
    ]
    assert lines[-2:] == ["not testable with one seed", "median of 30 passes"]


def test_no_name_is_missing(make):
    comparison = read_comparison(make.comparison(row(name="nan", layout="NA")))
    assert comparison.rows["name"].tolist() == ["nan"]
    assert "nan" in text_table(comparison)


def test_the_html_table_marks_the_chosen_layout(make):
    comparison = read_comparison(make.comparison())
    assert comparison.chosen == "argmax-0"
    chosen, other = html_table(comparison).rows
    assert (chosen[0], other[0]) == (True, False)
    assert chosen[1][:3] == ["2 attention, 3 feed-forward, mixed", "adadid", "argmax-0"]
    assert "2.0561" in other[1]


@pytest.mark.filterwarnings("error")
def test_the_figure_shows_perplexity_against_latency_and_flops(make):
    figure = scatter(read_comparison(make.comparison()))
    by_latency, by_flops = (
        {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
        for axes in figure.axes
    )
    assert by_latency == {"chosen layout": [[3.456, 60.3403]]}
    assert by_flops == {"chosen layout": [[2.41e6, 60.3403]], "baselines": [[2.81e6, 61.5592]]}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["chosen layout", "baselines"]
    names = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert names == [["adadid"], ["adadid", "interleaved\nadadad"]]
    assert png(figure)


def test_a_parent_has_a_mark_of_its_own(make):
    (axes,) = scatter(read_comparison(make.comparison(row(name="parent", role="parent")))).axes
    assert [line.get_label() for line in axes.get_lines()] == ["parent"]


def test_the_ends_of_intervals_lie_within_the_axes(make):
    """An interval of nats is one of perplexity."""
    rows = row(latency="3.0") + row(name="other", latency="4.0", bits="2.1")
    nats, latency = {"par-5": {"nats_per_token": [3.0, 5.0]}}, {"par-5": [2.0, 3.9]}
    run = make.comparison(rows, intervals=nats, latency_interval_ms=latency)
    figure = scatter(read_comparison(run))
    by_latency = figure.axes[0]
    drawn = [line for bars in by_latency.collections for line in bars.get_segments()]
    bars = [line for line in drawn if len(line)]
    low, high = (end for end in by_latency.get_ylim())
    (level,), ends = sorted((sorted({*line[:, 1]}) for line in bars), key=len)
    assert level == 54.6
    assert ends == pytest.approx(np.exp([3.0, 5.0]))
    assert low < ends[0] < ends[1] < high


@pytest.mark.filterwarnings("error")
def test_lost_text_leaves_the_bits_out_and_the_figure_shows_perplexity(make):
    comparison = read_comparison(make.comparison(row(bits="") + row(name="other", bits="")))
    rows = text_table(comparison).splitlines()[4:7:2]
    assert [line.split()[4] for line in rows] == ["-", "-"]
    assert all(cells.count("-") >= 2 for _, cells in html_table(comparison).rows)
    axes = scatter(comparison).axes[0]
    assert axes.get_ylabel() == "test perplexity (lower is better)"
    assert axes.get_lines()[0].get_ydata().tolist() == [54.6, 54.6]


def test_names_in_the_figure_do_not_cover_each_other(make):
    rows = "".join(
        row(name=f"random-{i}", layout="a d d i a d", flops=str(1e6 + 1000 * (i % 3)))
        for i in range(11)
    )
    figure = scatter(read_comparison(make.comparison(rows + row(name="far", flops="2e6"))))
    figure.canvas.draw()  # sets the places of names
    texts = figure.axes[0].texts
    boxes: list[Bbox] = [Text.get_window_extent(text) for text in texts]
    assert len(boxes) == 12
    assert any(text.arrow_patch for text in texts), "a far name has a line to its mark"
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])


def with_relatives(make, *names, latency="3.4", layout="a d", words=""):
    """A comparison beside interleaved."""
    relative, rows = "0.661234" if latency else "", ""
    for place, name in enumerate(names):
        role, equal = "baseline", "FLOPs latency" if place else "parameters"
        rows += f"{name},{layout},3,1234567,2.41e6,{latency},4.1,60.34,2.05,4.0,{role},"
        rows += f"{words},{relative},1.04321,{equal}\n"
    return read_comparison(make.comparison(rows, reference="interleaved", verdict="better",
                                           latency_note=""))  # fmt: skip


@pytest.mark.parametrize(("words", "shown"), [("123.456", True), ("", False)])
def test_word_perplexity_has_a_column_where_every_row_has_it(make, words, shown):
    comparison = with_relatives(make, "argmax-0", "par-5", words=words)
    assert ("/word" in text_table(comparison)) == shown
    assert (("ppl", "/word") in html_table(comparison).head) == shown
    assert ("123.46" in html_table(comparison).rows[0][1]) == shown


def test_what_is_relative_is_beside_and_what_is_matched_is_in_words(make):
    table = text_table(with_relatives(make, "argmax-0", "interleaved_short-4"))
    lines = table.splitlines()
    assert lines[4].split()[1:] == [
        "60.34", "1.043x", "4.1000", "2.0500", "3.40", "0.66x", "2.41M", "1.23M", "params",
    ]  # fmt: skip
    assert lines[6].endswith(" FLOPs latency")
    assert "Each result is the mean of 3 seeds, on test text." in table
    assert lines[-1] == "better"
    rows = [
        one | {"role": role}
        for one, role in zip(
            read_comparison(make.run).rows.to_dict("records"), ("chosen", "baseline"), strict=True
        )
    ]
    (make.run / "comparison.json").write_text(json.dumps(
        json.loads((make.run / "comparison.json").read_text()) | {"rows": rows}))  # fmt: skip
    shown = text_table(read_comparison(make.run)).splitlines()
    assert shown[4].endswith(" -"), "the chosen layout is not matched with itself"


@pytest.mark.parametrize("words", ["", "12345.678"])
def test_the_table_of_today_fits_120_columns_and_tells_the_baselines_apart(make, words):
    names = ("argmax-0-latency0.65x-filled", "interleaved_short-12", "interleaved_narrow-1792")
    for layout in ("a d " * 12, "a dense_1792 " * 6, "mixture_of_experts " * 12):
        comparison = with_relatives(make, *names, latency="123.456", layout=layout, words=words)
        body, *_ = text_table(comparison).split("\n\n")
        lines = body.splitlines()
        assert max(map(len, lines)) <= 120
        rows = [at for at, line in enumerate(lines) if at > 2 and line[:2] == "  "]
        assert [lines[at].split()[0] for at in rows] == [*names]
        # The layout is in the lines above its row, as many as it takes.
        above = "".join(lines[3 : rows[0]])
        letters = above.partition(": ")[2].replace(" ", "")
        assert letters == layout.replace(" ", "")
        shown = html_table(comparison).rows[0][1]
        assert shown[1].replace(" ", "") == layout.replace(" ", "")
        # What nats say too is left out where there is no room, but not on the page.
        assert ("2.0500" in body) == (not words)
        assert "2.0500" in shown


@pytest.mark.parametrize(
    ("letters", "name", "title"),
    [
        ("aadddi", "trained-0", "attention first (2 attention, 3 feed-forward)"),
        ("iadi", "layout-iadi", "interleaved (1 attention, 1 feed-forward)"),
        ("adadad", "interleaved", "interleaved (3 attention, 3 feed-forward)"),
        ("adada", "interleaved-5", "interleaved cut to 5 blocks"),
        ("adadad", "interleaved-ffn344", "interleaved (3 attention, 3 feed-forward)"),
        ("dda", "layout-dda", "feed-forward first (1 attention, 2 feed-forward)"),
        ("dadaa", "argmax-0", "3 attention, 2 feed-forward, mixed"),
        ("adadad", "random-0", "random (3 attention, 3 feed-forward)"),
        ("ddaa", "permuted-1", "permuted (2 attention, 2 feed-forward)"),
        ("ggdadd", "argmax-0", "1 attention, 3 feed-forward, 2 gated delta, mixed"),
        ("agdra", "argmax-0", "5 blocks of 4 kinds, mixed"),
        ("i", "argmax-0", "no block adds anything"),
    ],
)
def test_a_layout_is_named_for_what_it_is(letters, name, title):
    kinds = {"a": "attention", "d": "dense", "i": "identity", "g": "gated_delta", "r": "routing"}
    assert layout_title([kinds[letter] for letter in letters], name) == title
