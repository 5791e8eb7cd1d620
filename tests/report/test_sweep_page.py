"""The page of a sweep: whole, self-contained, escaped, at every stage of the sweep."""

import base64
import re

import pytest

from report.sweep.page import write_sweep_report
from report.sweep.trials import Objective
from tests.report.html_page import Page, fetches_nothing, is_accessible

EVIL = "<script>alert('x')</script>"
PNG = b"\x89PNG\r\n\x1a\n" + b"picture"


def page_of(run, sweep):
    run.mkdir(exist_ok=True)
    page = Page(write_sweep_report(run, sweep).read_text(encoding="utf-8"))
    assert page.open == []
    return page


def test_a_finished_sweep_has_every_section(sweeper, tmp_path):
    rows = [
        *(sweeper.row(n, values=[2.05 - 0.01 * n], params={"model.slots": n}) for n in range(4)),
        sweeper.row(4, state="failed", reason="killed for memory", attempts=3),
        sweeper.row(5, state="pruned"),
    ]
    run = tmp_path / "run"
    (run / "figures").mkdir(parents=True)
    for name in ("history.png", "slice-1.png", "other.png"):
        (run / "figures" / name).write_bytes(PNG)
    page = page_of(run, sweeper.sweep(rows, best=[3], no_slower=2))
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


def test_several_objectives_have_their_front_marked(sweeper, tmp_path):
    values = [[2.05, 3e6], [2.0, 4e6], [2.2, 1e6], [2.3, 5e6]]
    rows = [sweeper.row(n, values=v) for n, v in enumerate(values)]
    page = page_of(tmp_path, sweeper.sweep(rows, 2, best=[1, 0, 2]))
    assert "The Pareto front" in page.headings
    assert page.text.count('<tr class="searched">') == 3


@pytest.mark.parametrize("state", ["failed", "running", "waiting", "stopped"])
def test_a_sweep_without_a_finished_trial_has_a_page(sweeper, tmp_path, state):
    rows = [sweeper.row(n, state=state) for n in range(2)]
    page = page_of(tmp_path, sweeper.sweep(rows))
    assert f"No trial has finished: 2 {state}." in page.text
    assert "CONFIRM" not in page.text
    assert "Finished trials" not in page.headings
    assert ("Trials without a value" in page.headings) == (state != "waiting")


def test_everything_that_comes_from_files_is_escaped(sweeper, tmp_path):
    evil = {"layout": EVIL, "host": EVIL, "params": {EVIL: EVIL, "a.b": [EVIL]}}
    rows = [
        sweeper.row(0, **evil),
        sweeper.row(1, **evil, values=[1.0]),
        sweeper.row(2, **evil, state="failed", reason=EVIL),
    ]
    changed = {key: EVIL for key in ("name", "sampler", "pruner", "storage", "latency_note")}
    commands = {key: EVIL for key in ("rerun", "dashboard", "confirm", "sweep")}
    sweep = sweeper.sweep(
        rows, **changed, commands=commands, best=[1],
        objectives=[Objective(EVIL, EVIL)], latency_key={EVIL: EVIL},
    )  # fmt: skip
    page = page_of(tmp_path, sweep)
    fetches_nothing(page)
    assert page.text.count("&lt;script&gt;") >= 25
