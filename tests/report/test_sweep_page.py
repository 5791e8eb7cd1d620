"""The page of a sweep: whole, self-contained, escaped, at every stage of the sweep."""

import base64
import re

import pytest

from report.sweep.page import write_sweep_report
from report.sweep.trials import Goal
from tests.report.html_page import Page, fetches_nothing, is_accessible

EVIL = "<script>alert('x')</script>"
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


def page_of(run, sweep, figures=()):
    run.mkdir(exist_ok=True)
    page = Page(write_sweep_report(run, sweep, figures).read_text(encoding="utf-8"))
    assert page.open == []
    return page


def test_a_finished_sweep_has_every_section(sweeper, tmp_path):
    rows = [
        *(sweeper.row(n, values=[2.05 - 0.01 * n], params={"model.n_blocks": n}) for n in range(4)),
        sweeper.row(4, state="failed", reason="killed for memory", attempts=3),
        sweeper.row(5, state="pruned"),
    ]
    figures = [tmp_path / "history.png", tmp_path / "slice-1.png"]
    for path in figures:
        path.write_bytes(PNG)
    page = page_of(tmp_path / "run", sweeper.sweep(rows), figures)
    assert page.headings == ["Result", "Figures", "Trials", "Glossary"]
    pictures = ["data:image/png;base64," + base64.b64encode(PNG).decode()] * 2
    assert [load for load in page.loads if not load.startswith("#")] == pictures
    fetches_nothing(page)
    is_accessible(page)
    assert page.part("answer").count("<ol") == 2  # the best layout beside the baseline's
    for shown in ("killed for memory", "CONFIRM", "sqlite:///study.db"):
        assert shown in page.text
    # Sorted by value, the best marked.
    numbers = re.findall(r'<th scope="row" class="text">trial (\d)', page.text)
    assert numbers == ["3", "2", "1", "0", "4", "5"]
    marked = re.findall(r'<tr class="chosen"><th scope="row" class="text">(.*?)</th>', page.text)
    assert marked == ["trial 3"]


def test_each_layout_that_the_seeds_of_a_trial_derived_is_drawn(sweeper, tmp_path):
    rows = [sweeper.row(0, values=[2.0], layout="a d / d a i")]
    answer = page_of(tmp_path, sweeper.sweep(rows)).part("answer")
    assert (answer.count("<ol"), answer.count("<li")) == (2, 5)


@pytest.mark.parametrize("state", ["failed", "running", "waiting"])
def test_a_sweep_without_a_finished_trial_has_a_page(sweeper, tmp_path, state):
    rows = [sweeper.row(n, state=state) for n in range(2)]
    page = page_of(tmp_path, sweeper.sweep(rows))
    assert f"No trial has finished: 2 {state}." in page.text
    assert "CONFIRM" not in page.text
    assert page.text.count('<th scope="row"') == (0 if state == "waiting" else 2)


def test_everything_that_comes_from_files_is_escaped(sweeper, tmp_path):
    evil = {"layout": EVIL, "host": EVIL, "params": {EVIL: EVIL, "a.b": [EVIL]}}
    rows = [
        sweeper.row(0, **evil),
        sweeper.row(1, **evil, values=[1.0]),
        sweeper.row(2, **evil, state="failed", reason=EVIL),
    ]
    goals = [Goal(EVIL, EVIL)]
    sweep = sweeper.sweep(rows, name=EVIL, facts={EVIL: EVIL}, confirm=EVIL, objectives=goals)
    page = page_of(tmp_path, sweep)
    fetches_nothing(page)
    assert page.text.count("&lt;script&gt;") >= 20
