"""A report as a reader that minds tags, addresses, headings and texts for pictures."""

import itertools
import re
from html.parser import HTMLParser

# Tags that never close, and those whose address a browser would load.
VOID = {"meta", "img", "br", "input", "col", "link", "source"}
_LOADED = ("src", "srcset", "data", "poster", "action", "formaction", "background", "xlink:href")


class Page(HTMLParser):
    """Headings, addresses that load or lead somewhere, and tags that never close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.loads, self.tags, self.open = text, [], [], []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.loads += [value for name, value in attrs if name in (*_LOADED, "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        """The attributes of every element of a tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def headings(self):
        """The titles of the sections."""
        return re.findall("<h2>(.*?)</h2>", self.text)

    @property
    def levels(self):
        """The levels of all headings, in order."""
        return [int(tag[1]) for tag in self.tags if re.fullmatch(r"h[1-6]", tag)]

    def part(self, key):
        """The HTML of the section that links lead to by this key."""
        return self.text.partition(f'<section id="{key}"')[2].partition("</section>")[0]


def fetches_nothing(page: Page) -> None:
    """Assert that a browser shows the page without a script or anything beside it."""
    foreign = {"script", "link", "iframe", "object", "embed", "base", "form", "audio", "video"}
    assert not foreign & {*page.tags}
    for tag, attributes in page.elements:
        assert not attributes.keys() & {"srcset", "background", "xlink:href"}, tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert attributes.get("src", "data:image/").startswith("data:image/")
        assert "url(" not in attributes.get("style", "")
    (policy,) = (meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    (style,) = re.findall("<style>(.*?)</style>", page.text, re.DOTALL)
    assert not re.search(r"url\(|@import|image-set|https?:|//", style)


def is_accessible(page: Page) -> None:
    """Assert what can be seen of the markup: headings, texts for pictures, tables, keyboard."""
    assert page.all("html")[0]["lang"] == "en"
    assert page.levels[0] == 1
    assert page.levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(page.levels))
    assert all(len(picture["alt"]) > 20 for picture in page.all("img"))
    assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
    for tag, attributes in page.elements:
        # What may be wider than the page is reached and named.
        if tag == "pre" or attributes.get("class") == "scroll":
            assert (attributes["tabindex"], attributes["role"]) == ("0", "region")
            assert attributes["aria-label"]
    keys = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(keys) == len(set(keys))
    assert page.all("a")[0]["class"] == "skip"
