"""What `make site` asks of mkdocs beside mkdocs.yml: pages and files that lie outside docs/.

README.md becomes the front page. A link from a page to another file of the repository leads to a
copy of it in the site, so that the site is whole wherever it lies.
"""

import os.path
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Where pages outside docs/ stand in the site.
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
COPIES = "repository"
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/, and a copy of every file that a page links to."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    pages, copied = [_source(file.src_uri) for file in files.documentation_pages()], set[Path]()
    for page in pages:  # grows: a copied note has links of its own
        linked = {path for path in _targets(page) if _uri(path).startswith(COPIES)} - copied
        pages += [path for path in linked if path.suffix == ".md"]
        copied |= linked
    for path in sorted(copied):
        files.append(File.generated(config, _uri(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn the links of a page as it lies in the repository into those of the site."""
    source, here = _source(page.file.src_uri), PurePosixPath(page.file.src_uri).parent

    def rewritten(match: re.Match[str]) -> str:
        target = _target(source, match[2])
        if target is None:
            return match[0]  # the net, or broken: mkdocs says which
        return f"{match[1]}{os.path.relpath(_uri(target), here)}{match[3] or ''}"

    return _LINK.sub(rewritten, markdown)


def _source(uri: str) -> Path:
    """The file of the repository that a page of the site is made of."""
    outside = {place: name for name, place in PAGES.items()}
    copy = uri.removeprefix(f"{COPIES}/")
    return ROOT / (outside.get(uri) or copy) if uri in outside or copy != uri else DOCS / uri


def _uri(path: Path) -> str:
    """Where a file of the repository stands in the site."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return PAGES.get(name, f"{COPIES}/{name}")


def _target(source: Path, link: str) -> Path | None:
    """The file of the repository that a link leads to."""
    path = (source.parent / link).resolve()
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def _targets(source: Path) -> Iterator[Path]:
    for match in _LINK.finditer(source.read_text(encoding="utf-8")):
        if (target := _target(source, match[2])) is not None:
            yield target
