"""The first screen: who stands beside whom, with which figures, and what is said in words."""

import json
import re
from html import unescape

import pytest

from report.layouts import palette_of
from report.page import write_report
from tests.report.html_page import Page

NAMES = ("argmax-0", "interleaved", *(f"rule-{i}" for i in range(7)))
LINES = [
    f"the chosen layout is better than {name} (the smallest visible difference is 1.0%, 0.0100 "
    "nats/token): perplexity is 2.0% lower (95% interval -3.0% to -1.0%, 3 seeds), -0.0200 "
    "nats/token"
    for name in NAMES[1:]
]
GENERAL = "The seeds repeat the training: nothing follows about the search itself."
SAVED = (
    "3 attention, 3 feed-forward: at 0.74x of interleaved's latency, perplexity is 2.0% lower "
    "(95% interval -3.0% to -1.0%, 3 seeds)"
)


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """The first screen has no figure, and those below take long."""
    monkeypatch.setattr("report.page.scatter", lambda comparison: None)
    monkeypatch.setattr("report.page.png", lambda figure: b"")


def csv_rows(names, slots, seeds):
    return "".join(
        f"{name},{'a ' * slots},{seeds},1000,2e6,{3.4 - 0.9 * (not i)},"
        f"{4.4 + 0.02 * bool(i) + 0.001 * (9 - i) * bool(i)},80,2.0,4.0,"
        f"{'baseline' if i else 'chosen'},,,,\n"
        for i, name in enumerate(names)
    )


def compared(make, *, slots=6, seeds=3, **changed):
    make.architecture("argmax-0", ("attention", "dense") * (slots // 2), chosen=True)
    said = {
        "saving": SAVED,
        "verdict": "\n".join([*LINES, GENERAL]),
        "reference": "interleaved",
        "latency_note": "median of 30",
        "intervals": {
            name: {
                "nats_per_token": [4.38, 4.42],
                "chosen_less_it": [-0.02, -0.03, -0.01],
                "p": 0.0123,
                "shown": "nothing" if name == "rule-6" else "better",
            }
            for name in NAMES
        },
        "latency_interval_ms": {name: [2.4, 2.61] for name in NAMES},
    }
    make.comparison(csv_rows(NAMES, slots, seeds), **{**said, **changed})
    return Page(write_report(make.run).read_text(encoding="utf-8"))


def test_the_reference_and_the_strongest_stand_beside_the_chosen_one(make):
    first = compared(make).part("answer")
    heads = re.findall(r'<th scope="col"[^>]*>([^<]+)<small>([^<]+)', first)
    assert heads == [
        ("6 attention", "argmax-0, chosen"), ("6 attention", "interleaved, the reference"),
        *(("6 attention", f"rule-{i}, baseline") for i in (6, 5, 4, 3)),
    ]  # fmt: skip
    assert '<a href="#layouts">3 more below</a>' in first
    assert first.count('<ol class="stack"') == 6


def test_intervals_stand_where_the_files_have_them(make):
    first = compared(make).part("answer")
    assert "4.4000<small>± 0.0200</small>" in first
    assert "2.50<small>[2.40, 2.61]</small>" in first
    assert "-0.0280<small>± 0.0100</small>" in first
    assert "<small>3 seeds, 95%</small>" in first
    bare = compared(make, seeds=1, intervals={}, latency_interval_ms={}).part("answer")
    assert "<small>one seed, no interval</small>" in bare
    assert "±" not in bare
    assert "ms, no interval" in bare


def test_the_verdict_is_cut_to_what_the_screen_holds_and_whole_below(make):
    page = compared(make)
    first = page.part("answer")
    box = first.partition('class="verdict"')[2].partition("</p>")[0]
    assert "than interleaved (" in box
    other = compared(make, reference="rule-3").part("answer")
    assert "than rule-3 (" in other, "the line of the reference, by its place"
    assert GENERAL in box
    assert "Of 8 baselines, the chosen layout is better than 7, not shown to differ from 1." in box
    assert len(box) < 700
    assert '<a href="#comparison">Read the whole verdict</a>' in first
    whole = unescape(page.part("comparison"))
    assert all(line in whole for line in [*LINES, GENERAL, SAVED])
    short = compared(make, verdict="not testable with one seed").part("answer")
    assert "not testable with one seed" in short
    assert "the whole verdict" not in short


def test_warnings_are_shortened_above_and_whole_below(make):
    page = compared(make)
    assert "Read with care" not in page.part("answer")
    path = make.run / "architecture.json"
    content = json.loads(path.read_text())
    lines = ["warning: " + "long " * 80, "warning: two", *(f"warning: {'x' * 200}" for _ in "ab")]
    content["evidence"]["caveats"] = lines
    path.write_text(json.dumps(content))
    page = Page(write_report(make.run).read_text(encoding="utf-8"))
    box = page.part("answer").partition('class="caveats"')[2]
    assert "<li>long long" in box
    assert "...</li>" in box
    assert "<li>two</li>" in box
    assert len(box.partition("</ul>")[0]) < 700
    assert '<a href="#derived">All 4 warnings in full</a>' in box
    assert "long " * 79 in page.part("derived")


def test_a_layout_that_was_chosen_after_the_comparison_is_not_taken_for_the_compared_one(make):
    compared(make)
    make.architecture("top_k-0", ("attention", "dense") * 3, chosen=True)
    chosen = json.loads((make.run / "architecture.json").read_text())
    chosen["evidence"]["pi"] = [{"attention": 0.991, "dense": 0.991}] * 6
    (make.run / "architecture.json").write_text(json.dumps(chosen))
    page = Page(write_report(make.run).read_text(encoding="utf-8"))
    first = page.part("answer")
    assert "top_k-0 was chosen after this comparison of argmax-0: compare again" in first
    assert "0.62" in first
    assert "0.99" not in first
    assert page.part("derived").count(">0.99<") == 6


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, SAVED),
        ({"saving": ""}, "6 attention: perplexity 80.00 per test token."),
        ({"saving": "", "reference": "argmax-0"}, "6 attention is the reference itself: perp"),
    ],
)
def test_the_saving_beside_the_reference_comes_first(make, changed, words):
    first = unescape(compared(make, **changed).part("answer"))
    assert words in first.partition('<p class="saving">')[2].partition("</p>")[0]


def test_a_letter_has_the_colour_of_its_kind():
    hues = palette_of([["attention", "a", "dense", "d", "other"]]).hues
    assert hues["attention"] == hues["a"]
    assert hues["dense"] == hues["d"]
    assert len(set(hues.values())) == 3
