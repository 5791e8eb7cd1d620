"""The docs as a site: built in strict mode, whole, and without anything from the net."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=root, capture_output=True, text=True, check=False,
        env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""},
    )  # fmt: skip


class Page(HTMLParser):
    """What a page loads when it is read, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        found = values.get("src") or values.get("href")
        if found and (tag != "a" and values.get("rel") != "canonical"):
            self.loads.append(found)
        elif found:
            self.links.append(found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_loads_nothing_from_the_net_and_all_its_links_lead_somewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for path in pages:
        page = Page(path.read_text(encoding="utf-8"))
        outside = [link for link in page.loads if re.match(r"(https?:)?//", link)]
        assert outside == [], path
        if path.name == "404.html":  # its links begin at the server's root
            continue
        for link in [*page.loads, *page.links]:
            name = link.partition("#")[0].partition("?")[0]
            if name and not re.match(r"[a-z]+:", name):
                assert (path.parent / name).exists(), f"{path}: {link}"
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert not any(re.search(r"""url\(["']?(https?:)?//""", style) for style in styles)


def test_the_front_page_is_readme_and_files_of_the_repository_are_there(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    assert "Where does your Transformer-XL really need attention" in front
    assert 'href="tutorial.html"' in front
    assert 'src="figures/report.png"' in front
    copied = site / "repository/configs/hybrid.yaml"
    assert copied.read_bytes() == (ROOT / "configs/hybrid.yaml").read_bytes()
