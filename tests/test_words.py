"""Words that a user does not meet: of no other project, or of no English writer.

Looked at are the strings of the product that have a space, without the docstrings that no `--help`
shows, the descriptions in the schema, the comments of the experiments, and the prose of the pages.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.runs import ROOT

NO_PRODUCT = {"tests", "benchmarks", "docs", "runs", "site"}
# Pages on the code, where a block's place is a `Slot`.
ON_THE_CODE = {"docs/design.md", "docs/adding_a_block.md", "docs/estimators.md"}
SLOT = "slots?"
# By what a reader should find in their place. A space is any white space.
INSTEAD = {
    SLOT: "block",
    "opponents?|contestants?|rivals?": "baseline",
    "finals|finalists?|probes?": "trainings, of full or half length",
    "prequential": "next_batch",
    "phases? [12]|four verbs": "one of the four steps: search, derive, retrain, compare",
    "anew": "again, from scratch",
    "heed(?:s|ed|ing)?|unheeded": "use, take into account",
    "so many": "this many, or the number itself",
    "dear(?:er|est|ly)?": "expensive",
    "stands?(?!-| for)|stood|lies?": "is",
    "(?:comes?|came|coming) to(?! \\w+ing)": "is, amounts to",
    "(?:go|goes|going|went|gone) on(?! (?:a|the) )": "resume, continue",
    "(?:make|made|makes|making) (?:\\w+ )?again": "reproduce",
    "carr(?:y|ies|ied|ying) (?:\\w+ ){0,3}away": "export",
    "(?:is|are|was|were|be|been) (?:not )?said": "is reported",
    "nobody": "no one, not known",
    "is no one \\w+|of no use": "is not a, cannot be used",
    "the first row's|PFLT?": "the column matched, in words",
}
WORDS = {
    re.compile(r"\b(?:{})\b".format(words.replace(" ", r"\s+")), re.IGNORECASE): instead
    for words, instead in INSTEAD.items()
}


def strings(source: str) -> Iterator[tuple[int, str]]:
    """The strings of a module that a user can meet, with the numbers of their lines."""
    tree, hidden = ast.parse(source), set[ast.AST]()
    shown = any(isinstance(node, ast.Name) and node.id == "__doc__" for node in ast.walk(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Module(body=[ast.Expr(value=ast.Constant() as doc), *_]):
                hidden |= set[ast.AST]() if shown else {doc}
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                first = node.body[0]
                hidden |= {first.value} if isinstance(first, ast.Expr) else set()
            case ast.JoinedStr():
                # Once as a whole: its parts come later.
                parts = [part for part in node.values if isinstance(part, ast.Constant)]
                hidden.update(parts)
                texts = [str(part.value) if part in parts else "{}" for part in node.values]
                if " " in (text := "".join(texts)):
                    yield node.lineno, text
            case ast.Constant(value=str() as text) if node not in hidden and " " in text:
                yield node.lineno, text


def prose(page: str) -> Iterator[tuple[int, str]]:
    """A page without code and without the targets of links, its lines where they were."""
    fenced = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
    page = fenced.sub(lambda match: "\n" * match[0].count("\n"), page)
    yield 1, re.sub(r"`[^`]+`|\]\([^)]*\)|<!--.*?-->", lambda m: "\n" * m[0].count("\n"), page)


def found(file: Path, texts: Iterator[tuple[int, str]]) -> list[str]:
    """Where a file uses a word of the list, and what to say."""
    name = file.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line + text[: match.start()].count(chr(10))}: {' '.join(match[0].split())!r} in "
        f"{text[max(0, match.start() - 30) : match.end() + 20]!r}; say {instead}"
        for line, text in texts
        for pattern, instead in WORDS.items()
        if name not in ON_THE_CODE or instead != INSTEAD[SLOT]
        for match in pattern.finditer(text)
    ]


def product() -> list[Path]:
    """The modules of the product."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."]
    below = [file for path in folders if path.name not in NO_PRODUCT for file in path.rglob("*.py")]
    return sorted([*ROOT.glob("*.py"), *below])


def test_strings_of_the_product_have_no_private_words() -> None:
    files = [file for file in product() if file.name != "conftest.py"]
    assert len(files) > 100
    hits = [hit for file in files for hit in found(file, strings(file.read_text("utf-8")))]
    schema = ROOT / "configs/experiment.schema.json"
    described = re.findall(r'"description": (".*")', schema.read_text("utf-8"))
    hits += found(schema, ((1, json.loads(text)) for text in described))
    assert hits == [], "\n".join(["", *hits])


def test_pages_and_experiments_have_no_private_words() -> None:
    hits = [
        hit
        for file in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
        for hit in found(file, prose(file.read_text("utf-8")))
    ]
    notebook = ROOT / "docs/parnas.ipynb"
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    cells = [cell for cell in cells if cell["cell_type"] == "markdown"]
    hits += found(notebook, ((1, "".join(cell["source"])) for cell in cells))
    for file in sorted(ROOT.glob("configs/*.yaml")):
        lines = enumerate(file.read_text("utf-8").splitlines(), 1)
        hits += found(file, ((number, line.partition("#")[2]) for number, line in lines))
    assert hits == [], "\n".join(["", *hits])


def test_strings_are_found() -> None:
    for source, seen in {
        'raise ValueError(f"{name} lies in {slot}")': 1,
        'x = "slot", "a slot"  # a slot': 1,
        '"""A slot."""\nclass A:\n    """A slot."""\n    x = "a s" "lot"': 1,
        '"""A slot."""\nparse(__doc__)': 1,
        'f("a stand-alone layer, standard, and a finally said word")': 0,
    }.items():
        assert len(found(ROOT / "x.py", strings(source))) == seen, source


def test_prose_is_without_code() -> None:
    page = "A `slot` [link](slot.md)\n```\na slot\n```\nit goes\non anew"
    assert [hit.split(": ")[0] for hit in found(ROOT / "x.md", prose(page))] == ["x.md:6", "x.md:5"]
