"""The page: whole, self-contained, escaped, and only about what exists."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from report.page import write_report
from report.searches import SEARCH_FIGURES
from tests.report.html_page import Page
from tests.runs import ROOT

DRAWN = tuple(SEARCH_FIGURES)
pytestmark = pytest.mark.figures


def page_of(run: Path) -> Page:
    return Page(write_report(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(make_once) -> Page:
    make = make_once
    make.search(slots=3, steps=3)
    make.architecture("argmax-0", ("attention", "dense", "wide"), chosen=True)
    make.architecture("par-5", ("attention", "dense", "dense"), chosen=False)
    make.retraining("argmax-0")
    make.comparison()
    return page_of(make.run)


def test_a_whole_run_has_every_section(whole):
    assert whole.headings == [
        "The answer",
        "Comparison on the test split",
        "All layouts",
        "Search, seed 0",
        "Derived layout",
        "Retraining",
        "The commands that reproduce it",
        "Glossary",
    ]
    assert whole.open == []
    # The pi that each block of the layout was chosen with.
    assert [whole.part(key).count(">0.62<") for key in ("answer", "derived")] == [3, 3]
    for shown in ("pydoc-topics", "not testable with one seed", "1.23M parameters", "4.1250"):
        assert shown in whole.text


def test_the_pictures_stand_in_the_page_and_its_links_lead_somewhere(whole):
    pictures = [load for load in whole.loads if load.startswith("data:image/")]
    assert len(pictures) == whole.tags.count("img") == 7
    assert sum(load.startswith("data:image/gif") for load in pictures) == 1
    links = {attributes["href"] for attributes in whole.all("a")}
    assert links <= {f"#{attributes.get('id')}" for _, attributes in whole.elements}


def test_sections_without_files_are_left_out(make):
    assert page_of(make.run).headings == ["So far", "The commands that reproduce it", "Glossary"]
    make.search(slots=2, steps=2, drawn=DRAWN)
    page = page_of(make.run)
    assert page.headings[:2] == ["So far", "Search, seed 0"]
    assert page.part("answer").count("<li") == 2  # what is likeliest so far
    assert "python derive.py" in page.part("answer")
    assert re.search(r"python derive\.py .*\npython retrain\.py .*\npython compare\.py ", page.text)


def test_nothing_is_called_likeliest_while_all_are_equally_likely(make):
    folder = make.search(slots=2, steps=2, drawn=DRAWN)
    arrays = dict(np.load(folder / "pi.npz"))
    np.savez(folder / "pi.npz", **{**arrays, "pi": np.full_like(arrays["pi"], 1 / 3)})
    assert page_of(make.run).part("answer").count("<li") == 0


def test_figures_are_drawn_anew_only_when_they_are_older_than_the_run(make):
    folder = make.search(slots=1, steps=2)
    for path in folder.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    write_report(make.run)
    drawn = folder / "figures" / "schedule.png"
    drawn.write_bytes(b"kept")
    write_report(make.run)
    assert drawn.read_bytes() == b"kept"
    os.utime(folder / "pi.npz")
    os.utime(drawn, ns=(10**18, 10**18))
    write_report(make.run)
    assert drawn.read_bytes() != b"kept"


def test_report_imports_none_of_our_packages_no_torch_and_no_pyplot():
    code = (
        "import sys, report.page, report.sweep.figures, report.sweep.page;"
        "print(sorted({'data', 'model', 'training', 'nas', 'pipeline', 'torch', 'sklearn',"
        " 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_network_that_was_trained_under_two_names_is_shown_once(make, monkeypatch):
    lines = make.retraining("read-once") / "metrics.jsonl"
    valid = [line for line in lines.read_text().splitlines() if '"valid"' in line]
    lines.write_text(valid[0] + "\n")
    drawn = []
    monkeypatch.setattr(
        "report.retraining.validation_curves", lambda metrics, name: drawn.append(metrics)
    )
    monkeypatch.setattr("report.retraining.png", lambda figure: b"")
    for name in ("argmax-0", "layout-ddii", "other"):
        path = make.retraining(name) / "result.json"
        network = {"network": "n" if name == "other" else "m"}
        path.write_text(json.dumps(json.loads(path.read_text()) | network))
    page = write_report(make.run).read_text()
    assert list(drawn[0]) == ["argmax-0", "other"]  # one reading is no curve
    assert "layout-ddii and argmax-0 are one network." in page
    assert 'class="text">layout-ddii<' not in page.partition('id="retraining"')[2]


NOISE = "warning: in 3 of 4 slots alpha <moved> as noise would move it"
ALONE = "warning: one search says little about the next"


def caveats_file(folder: Path, *caveats: str) -> None:
    (folder / "caveats.json").write_text(json.dumps({"caveats": caveats}))


def joint_caveats_file(run: Path, content: dict[str, object]) -> None:
    (run / "search/caveats.json").write_text(json.dumps(content))


def test_a_search_has_its_caveats_and_several_theirs(make):
    first, second = (make.search(seed=seed, drawn=DRAWN) for seed in (0, 3))
    caveats_file(first, NOISE)
    caveats_file(second)
    joint_caveats_file(make.run, {"searches": [0, 3], "caveats": [ALONE]})
    text = page_of(make.run).text
    sections = {part.partition("</h2>")[0].partition("<h2>")[2]: part
                for part in text.split("<section")[1:]}  # fmt: skip
    assert ALONE.removeprefix("warning: ") in sections.pop("So far")
    assert [title for title, part in sections.items() if ALONE in part] == [
        "Searches of seeds 0, 3 together"
    ]
    assert "alpha &lt;moved&gt;" in sections["Search, seed 0"]
    joint_caveats_file(make.run, {"searches": [0, 1], "caveats": [ALONE]})
    assert ALONE not in page_of(make.run).text
