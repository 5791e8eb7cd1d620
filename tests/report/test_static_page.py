"""The page without a browser: it fetches nothing, anyone can read it, and no text breaks out."""

import base64
import hashlib
import html as text_of_html
import json
import re

import pytest

from report import html
from report.page import write_report
from report.plotting import colours, text_on
from report.search_figures import SEARCH_FIGURES
from report.slider import SCRIPT, _first_light_level, _ramp
from report.style import DARK, LIGHT, TEXT_ON
from tests.report.conftest import KINDS
from tests.report.html_page import Page, fetches_nothing, is_accessible

DRAWN = tuple(SEARCH_FIGURES)
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\u2028\u2029",
    "\" onload='x' \\",
    "]]>&lt;",
    "</style><b>",
)


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


def test_the_page_fetches_nothing(page):
    fetches_nothing(page)


def test_the_page_is_accessible(page):
    is_accessible(page)
    assert {1, 2, 3} <= set(page.levels)


def test_a_page_of_nothing_is_accessible(make):
    empty = Page(write_report(make.run).read_text(encoding="utf-8"))
    is_accessible(empty)
    fetches_nothing(empty)
    assert "script" not in empty.tags


def test_the_policy_allows_this_style_and_this_script_alone(page):
    policy = next(a["content"] for a in page.all("meta") if "http-equiv" in a)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    parts = {
        "style-src": re.findall("<style>(.*?)</style>", page.text, re.DOTALL),
        "script-src": re.findall("<script>(.*?)</script>", page.text, re.DOTALL),
    }
    for rule, found in parts.items():
        assert len(found) == 1
        digest = base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode()
        assert rules.pop(rule) == f"'sha256-{digest}'"
    assert rules == {
        "default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip


@pytest.mark.parametrize("colours_of", [LIGHT, DARK], ids=["light", "dark"])
def test_text_stands_out_by_four_and_a_half(colours_of):
    for text, ground in TEXT_ON:
        assert contrast(colours_of[text], colours_of[ground]) >= 4.5, (text, ground)


def test_labels_stand_out_from_their_blocks():
    hues = colours([*KINDS, *(f"other-{i}" for i in range(12))])
    assert len({hues[kind] for kind in KINDS}) == len(KINDS)
    for hue in hues.values():
        assert contrast(hue, text_on(hue)) >= 4.5, hue


def test_numbers_stand_out_from_every_cell():
    light = _first_light_level()
    for level, colour in enumerate(_ramp()):
        assert text_on(colour) == ("#ffffff" if level < light else "#000000")
        assert contrast(colour, text_on(colour)) >= 4.5


@pytest.mark.parametrize("label", HOSTILE)
def test_no_label_breaks_out(make, label):
    # Whichever is likeliest is named in the words for the picture.
    make.search(slots=2, labels=(f"{label} too", label), drawn=DRAWN)
    make.architecture("argmax-0", (label, "dense"), chosen=True)
    content = write_report(make.run).read_text(encoding="utf-8")
    found = Page(content)
    assert found.open == []
    assert found.tags.count("script") == 2
    assert found.tags.count("style") == 1
    fetches_nothing(found)
    blocks = re.findall(r'<script type="application/json">(.*?)</script>', content)
    data = json.loads(blocks[0])
    assert data["labels"] == [f"{label} too", label]
    assert label in found.all("svg")[0]["aria-label"]
    assert "\u2028" not in blocks[0]
    titles = [attributes.get("title", "") for tag, attributes in found.elements if tag == "li"]
    assert f"slot 0: {label}, pi 0.6250" in titles
    assert text_of_html.escape(label) in found.part("answer")


def test_json_is_inlined_without_what_ends_a_script():
    block = html.json_block({"a": "</script>\u2028<!--&"})
    inner = block.removeprefix('<script type="application/json">').removesuffix("</script>")
    assert not set("<>&\u2028") & set(inner)
    assert json.loads(inner) == {"a": "</script>\u2028<!--&"}
    with pytest.raises(ValueError, match="JSON compliant"):
        html.json_block(float("nan"))


def test_the_script_draws_by_attributes_that_the_policy_allows():
    # An element's style would be refused, and markup from data would be a way in.
    assert not re.search(r"\.style|innerHTML|outerHTML|insertAdjacent|document\.write", SCRIPT)


def test_the_slider_has_the_steps_and_stands_at_the_last(page):
    blocks = re.findall(r'<script type="application/json">(.*?)</script>', page.text)
    data = json.loads(blocks[0])
    assert data["step"][0] == 1
    assert data["step"][-1] == 60
    assert len(data["step"]) == len(data["pi"]) == len(data["tau"]) <= 50
    assert all(len(row) == 18 * len(KINDS) for row in data["pi"])
    assert all(993 <= sum(row[: len(KINDS)]) <= 1007 for row in data["pi"])
    (slider,) = page.all("input")
    assert slider["value"] == slider["max"] == str(len(data["step"]) - 1)
    # Without the script the last step is drawn: the cells in the order of the data.
    cells = re.findall(r'<text [^>]*class="pi[^>]*>([\d.]+)</text>', page.text)
    assert [round(1000 * float(cell)) // 10 for cell in cells] == pytest.approx(
        [value / 10 for value in data["pi"][-1]], abs=1.0
    )
    fills = [attributes["fill"] for attributes in page.all("rect")]
    ramp = [f"#{data['ramp'][i : i + 6]}" for i in range(0, 6 * 256, 6)]
    for fill, value in zip(fills, data["pi"][-1], strict=True):
        assert abs(ramp.index(fill) - 255 * value / 1000) <= 1
