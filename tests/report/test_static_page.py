"""The page without a browser: it fetches nothing, anyone can read it, and no text breaks out."""

import html
import re
from pathlib import Path

import pytest

from report.page import write_report
from report.plotting import colours, text_on
from report.searches import SEARCH_FIGURES
from tests.report.conftest import KINDS
from tests.report.html_page import Page, fetches_nothing, is_accessible

DRAWN = tuple(SEARCH_FIGURES)
STYLE = Path(__file__).parents[2] / "report/templates/style.css.j2"
HOSTILE = ("</script><script>alert(1)</script>", "\" onload='x' \\", "]]>&lt;{{ 1 }}", "</style>")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.fixture(scope="module")
def page(make_once):
    make_once.search(slots=18, labels=KINDS, drawn=DRAWN)
    make_once.architecture("argmax-0", KINDS[:3], chosen=True)
    make_once.architecture("interleaved", KINDS[3:6], chosen=False)
    make_once.retraining("argmax-0")
    make_once.comparison()
    return Page(write_report(make_once.run).read_text(encoding="utf-8"))


def test_the_page_fetches_nothing_and_is_accessible(page):
    fetches_nothing(page)
    is_accessible(page)
    assert {1, 2, 3} <= set(page.levels)


def test_a_page_of_nothing_is_accessible(make):
    empty = Page(write_report(make.run).read_text(encoding="utf-8"))
    is_accessible(empty)
    fetches_nothing(empty)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out_by_four_and_a_half(scheme):
    roots = re.findall(r":root \{(.*?)\}", STYLE.read_text(), re.DOTALL)
    hues = dict(re.findall(r"--(\w+): (#\w+);", roots[scheme]))
    for text in ("ink", "soft", "link"):
        for ground in ("page", "card", "mark"):
            assert contrast(hues[text], hues[ground]) >= 4.5, (text, ground)


def test_labels_stand_out_from_their_blocks():
    hues = colours([*KINDS, *(f"other-{i}" for i in range(12))])
    assert len({hues[kind] for kind in KINDS}) == len(KINDS)
    for hue in hues.values():
        assert contrast(hue, text_on(hue)) >= 4.5, hue


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_from_a_file_breaks_out(make, text):
    folder = make.search(slots=2, labels=(f"{text} too", text), drawn=DRAWN)
    (folder / "experiment.yaml").write_text(f"data: {text}")
    make.architecture("argmax-0", (text, "dense"), chosen=True)
    row = f'"{text.replace(chr(34), chr(34) * 2)}",a,1,1,1,,1,1,1,,baseline,,,,\n'
    make.comparison(f"argmax-0,a,1,1,1,,1,1,1,,chosen,,,,\n{row}", verdict=text, remarks=[text])
    found = Page(write_report(make.run).read_text(encoding="utf-8"))
    assert found.open == []
    fetches_nothing(found)
    titles = [attributes.get("title", "") for attributes in found.all("li")]
    assert f"block 0: {text}, pi 0.6250" in titles
    assert text in html.unescape(found.part("comparison"))
