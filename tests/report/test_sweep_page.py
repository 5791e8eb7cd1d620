"""The page of a sweep: whole, self-contained, escaped, at every stage of the sweep."""

import base64
import re

import pytest

from report.sweep.page import write_sweep_report
from report.sweep.tables import headline, warning
from report.sweep.trials import read_sweep
from tests.report.conftest import BITS, FLOPS
from tests.report.html_page import Page, fetches_nothing, is_accessible

EVIL = "<script>alert('x')</script>"
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


def page_of(run):
    page = Page(write_sweep_report(run).read_text(encoding="utf-8"))
    assert page.open == []
    return page


def words(sweeper, tmp_path, rows, goals=1, **changed):
    return read_sweep(sweeper.file(tmp_path / "run", rows, goals, **changed) / "sweep.json")


def test_a_finished_sweep_has_every_section(sweeper, tmp_path):
    rows = [
        *(sweeper.row(n, values=[2.05 - 0.01 * n], params={"model.slots": n}) for n in range(4)),
        sweeper.row(4, state="failed", values=None, reason="killed for memory", attempts=3),
        sweeper.row(5, state="pruned", values=None),
    ]
    run = sweeper.file(tmp_path / "run", rows, best=[3], no_slower=2)
    (run / "figures").mkdir()
    for name in ("history.png", "slice-1.png", "other.png"):
        (run / "figures" / name).write_bytes(PNG)
    page = page_of(run)
    assert page.headings == [
        "Result", "Settings of the best trial", "Figures", "Finished trials",
        "Trials without a value", "How to go on", "Glossary",
    ]  # fmt: skip
    pictures = ["data:image/png;base64," + base64.b64encode(PNG).decode()] * 2
    assert [load for load in page.loads if not load.startswith("#")] == pictures
    fetches_nothing(page)
    is_accessible(page)
    assert page.part("answer").count("<ol") == 2  # the best layout beside the baseline's
    for shown in ("killed for memory", "CONFIRM", "RERUN", "DASHBOARD", "median of 30 passes"):
        assert shown in page.text
    # Sorted by value, the best marked.
    numbers = re.findall(r'<th scope="row" class="text">trial (\d)', page.text)
    assert numbers == ["3", "2", "1", "0", "4", "5"]
    marked = re.findall(r'<tr class="searched"><th scope="row" class="text">(.*?)</th>', page.text)
    assert marked == ["trial 3"]


def test_the_headline_says_value_and_difference(sweeper, tmp_path):
    rows = [sweeper.row(0, values=[2.05]), sweeper.row(1, values=[2.0297])]
    sweep = words(sweeper, tmp_path, rows, no_slower=1)
    assert headline(sweep) == (
        "Trial 1 is the best of 2 finished: 2.0297 bits per byte of validation (retrained), "
        "0.0203 below the baseline's 2.0500.\n"
        "Best that is no slower than the baseline: trial 1 with 2.0297."
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "No trial has finished: no trial yet."),
        ([{"state": "failed", "values": None}] * 2, "No trial has finished: 2 failed."),
        ([{"values": [2.0]}, {"values": [2.1]}], "The baseline, trial 0, stays the best of 2:"),
        ([{"values": [2.0]}, {"values": [2.0]}], "The baseline, trial 0, stays the best of 2:"),
        (
            [{"state": "failed", "values": None}, {"values": [2.1]}],
            "Trial 1 is the best of 1 finished: 2.1000 bits per byte of validation (retrained), "
            "with no finished baseline to compare it with.",
        ),
    ],
)
def test_the_headline_fits_what_there_is(sweeper, tmp_path, rows, said):
    rows = [sweeper.row(n, **row) for n, row in enumerate(rows)]
    assert headline(words(sweeper, tmp_path, rows)).startswith(said)


def test_several_objectives_have_a_front_and_the_lowest_of_each(sweeper, tmp_path):
    values = [[2.05, 3e6], [2.0, 4e6], [2.2, 1e6], [2.3, 5e6]]
    rows = [sweeper.row(n, values=v) for n, v in enumerate(values)]
    run = sweeper.file(tmp_path / "run", rows, 2)
    assert headline(read_sweep(run / "sweep.json")).splitlines() == [
        "3 of 4 finished trials are beaten by none in all of retrained, flops (the Pareto front).",
        "Lowest retrained: trial 1 with 2.0000 bits per byte of validation, 0.0500 below the "
        "baseline's 2.0500.",
        "Lowest flops: trial 2 with 1.00 MFLOP per token, 2.00 below the baseline's 3.00.",
    ]
    page = page_of(run)
    assert "The Pareto front" in page.headings
    assert page.text.count('<tr class="searched">') == 3


@pytest.mark.parametrize("state", ["failed", "running", "waiting", "stopped"])
def test_a_sweep_without_a_finished_trial_has_a_page(sweeper, tmp_path, state):
    rows = [sweeper.row(n, state=state, values=None) for n in range(2)]
    page = page_of(sweeper.file(tmp_path / "run", rows))
    assert f"No trial has finished: 2 {state}." in page.text
    assert "CONFIRM" not in page.text
    assert "Finished trials" not in page.headings
    assert ("Trials without a value" in page.headings) == (state != "waiting")


def test_everything_that_comes_from_files_is_escaped(sweeper, tmp_path):
    evil = {"layout": EVIL, "host": EVIL, "params": {EVIL: EVIL, "a.b": [EVIL]}}
    rows = [
        sweeper.row(0, **evil),
        sweeper.row(1, **evil, values=[1.0]),
        sweeper.row(2, **{**evil, "state": "failed", "values": None, "reason": EVIL}),
    ]
    changed = {key: EVIL for key in ("name", "sampler", "pruner", "storage", "latency_note")}
    commands = {key: EVIL for key in ("rerun", "dashboard", "confirm", "sweep")}
    objectives = [{"name": EVIL, "unit": EVIL}]
    run = sweeper.file(
        tmp_path / "run", rows, **changed, commands=commands, objectives=objectives,
        latency_key={EVIL: EVIL},
    )  # fmt: skip
    page = page_of(run)
    fetches_nothing(page)
    assert page.text.count("&lt;script&gt;") >= 25


def test_many_trials_are_cut_and_said_to_be(sweeper, tmp_path):
    rows = [sweeper.row(n, values=[2.0 + n]) for n in range(60)]
    page = page_of(sweeper.file(tmp_path / "run", rows))
    assert "and 10 more: trials.csv" in page.text


def test_a_broken_file_leaves_the_old_page(sweeper, tmp_path):
    run = sweeper.file(tmp_path / "run", [])
    (run / "sweep.html").write_text("old")
    (run / "sweep.json").write_text("{")
    with pytest.raises(ValueError, match=r"sweep\.json: broken"):
        write_sweep_report(run)
    assert (run / "sweep.html").read_text() == "old"


def test_the_best_no_slower_is_told_by_what_was_trained(sweeper, tmp_path):
    rows = [sweeper.row(0, values=[3e6, 2.05]), sweeper.row(1, values=[1e6, 2.0])]
    run = sweeper.file(tmp_path / "run", rows, 2, no_slower=1, objectives=[FLOPS, BITS])
    assert headline(read_sweep(run / "sweep.json")).splitlines()[-1] == (
        "Lowest retrained that is no slower than the baseline: trial 1 with 2.0000."
    )


def test_the_warning_counts_trials_and_seeds(sweeper, tmp_path):
    rows = [sweeper.row(n) for n in range(3)]
    said = warning(words(sweeper, tmp_path, rows))
    assert said.startswith("The best of 3 trials of one seed each looks better than it is")
    assert said.endswith(":")  # the command follows
    rows = [sweeper.row(0, seeds={"0": [2.0], "1": [2.0]})]
    said = warning(words(sweeper, tmp_path, rows, commands={}))
    assert "of 2 seeds each" in said
    assert said.endswith(".")
