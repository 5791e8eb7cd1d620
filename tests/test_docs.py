"""README and docs: links, commands, named files and code blocks are those of the repository."""

import ast
import json
import re
import shlex
import tokenize
from pathlib import Path
from typing import cast

import pytest
import torch

from model import BLOCKS, ModelConfig
from model.blocks.base import Block
from model.ops import NO_DROPOUT
from pipeline.experiment import load_experiment
from tests.model.tiny import candidate, save_source
from tests.runs import ROOT, Capture

PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])
# Dated: they speak of commits whose modules had other names.
NOTES = sorted(ROOT.glob("benchmarks/records/*.md"))
NOT_OURS = {"-m pip", "-m pytest", "-m torch.distributed.run"}
# Environments, runs and the site are made.
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."}
FOLDERS -= {"runs", "site"}
# Files that a reader of the page makes.
MADE = {"model/blocks/gate.py", "configs/gate.yaml"}
# Words at most, as `wc -w` counts them.
MOST_WORDS = {
    **{"docs/results.md": 1400, "docs/layoutbench.md": 1000, "docs/headline.md": 900},
    **{"docs/decisions.md": 1150, "CHANGELOG.md": 700},
    **{"docs/blocks.md": 2050, "docs/benchmarks.md": 1450, "docs/estimators.md": 1050},
    **{"docs/tutorial.md": 1700, "docs/budgets.md": 1200},
    **{"docs/sweeps.md": 850, "docs/choosing.md": 1150},
    **{"docs/reading_results.md": 1550, "docs/faq.md": 1250},
    **{"docs/one_gpu.md": 1200, "docs/configs.md": 450, "docs/commands.md": 600},
}
every_page = pytest.mark.parametrize(
    "page", [*PAGES, *NOTES], ids=[str(path.relative_to(ROOT)) for path in [*PAGES, *NOTES]]
)


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in these languages; commands have none, which is ""."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [content for language, content in found if language in languages]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        there = file.exists() and file.is_relative_to(ROOT)
        if not there or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    return broken


def commands(page: Path) -> list[list[str]]:
    """The commands of a page: lines of blocks without a language, and code within lines."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in blocks(page, "") for line in block.replace("\\\n", "").splitlines()]
    inline = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += re.findall(r"`([^`]+)`", " ".join(inline.split()))
    starts = re.compile(r"(?:[A-Z_]+=\S+ )*(?=(?:python|make|torchrun) )")
    return [
        shlex.split(line[match.end() :], comments=True)
        for line in lines
        if (match := starts.match(line)) is not None
    ]


def unknown_commands(page: Path) -> list[str]:
    """Scripts, modules, targets and experiments that a page's commands name and nobody has."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = []
    for program, *words in commands(page):
        called = " ".join(words[:2]) if words[:1] == ["-m"] else words[0]
        if program == "make":
            there = all(word in targets or "=" in word for word in words)
        elif called.startswith("-m "):
            place = ROOT / called[3:].replace(".", "/")
            files = (place.with_suffix(".py"), place / "__main__.py")
            there = called in NOT_OURS or any(file.exists() for file in files)
        else:
            there = program == "torchrun" or not called.endswith(".py") or (ROOT / called).exists()
        configs = [word for word in words if word.startswith("configs/")]
        if not there or not all((ROOT / name).exists() or name in MADE for name in configs):
            unknown.append(shlex.join([program, *words]))
    return unknown


@every_page
def test_what_a_page_names_exists(page: Path) -> None:
    assert broken_links(page) == []
    if page in NOTES:
        return
    assert unknown_commands(page) == []
    names = re.findall(r"`([\w./-]+/[\w.-]*)`", page.read_text(encoding="utf-8"))
    ours = {name for name in names if name.split("/")[0] in FOLDERS} - MADE
    assert {name for name in ours if not (ROOT / name).exists()} == set()


@every_page
def test_python_and_experiments_are_readable(page: Path, tmp_path: Path) -> None:
    for source in blocks(page, "python"):
        ast.parse(source)
    for number, text in enumerate(blocks(page, "yaml")):
        if text.startswith(("data:", "run:")):
            file = tmp_path / f"{number}.yaml"
            file.write_text(
                text.replace("kind: gate", "kind: dense").replace("gate_bias: -1.0", "label: gate")
            )
            load_experiment(file)


def test_the_models_of_the_pages_load_and_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    pages = {"docs/tutorial.md": "my", "docs/models.md": "quickstart"}
    for page, name in pages.items():
        folder = tmp_path / "runs" / name / "model"
        save_source(folder, candidate("attention"), candidate("dense"))
        (source,) = (text for text in blocks(ROOT / page, "python") if "load_model" in text)
        exec(compile(source, page, "exec"), {})
        assert capsys.readouterr().out


def test_the_table_of_blocks_says_what_is_counted() -> None:
    page = (ROOT / "docs" / "blocks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w) \| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(rows) >= 12
    model = ModelConfig(n_blocks=1, d_model=128, d_ffn=512, n_heads=4, memory=128)
    for letter, kind, weights, products in rows:
        options = BLOCKS[kind].options.model_validate({"kind": kind, "label": kind})
        completed = options.completed(model.d_model, model.model_dump())
        with torch.device("meta"):
            module = BLOCKS[kind].block(completed, model.d_model, NO_DROPOUT)
        block = cast(Block, module)
        numbers = sum(parameter.numel() for parameter in module.parameters())
        flops = block.flops(1, 128, block.memory_rows)
        counted = [f"{number / model.d_model**2:.1f}" for number in (numbers, flops / 2)]
        assert [letter, weights, products] == [BLOCKS[kind].letter, *counted], kind


def test_the_demo_is_the_same_four_commands_everywhere_and_all_its_settings_are_in_the_file() -> (
    None
):
    (readme,) = (block for block in blocks(ROOT / "README.md", "") if "search.py" in block)
    cells = json.loads((ROOT / "docs/parnas.ipynb").read_text(encoding="utf-8"))["cells"]
    scripts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    notebook = "".join(one for one in scripts if one.startswith("%%bash"))
    for name, value in {
        '"$CONFIG"': "configs/quickstart.yaml",
        '"$RUN"': "runs/quickstart",
    }.items():
        assert f'"{value}"' in scripts[0]
        notebook = notebook.replace(name, value)
    demo = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    makefile = demo.replace("$(BIN)", "python")
    first, *others = (
        [" ".join(call.split()) for call in re.findall(r"python \w+\.py [^#\n%]*", text)]
        for text in (makefile, readme, notebook.replace(" --run runs/quickstart", ""))
    )
    assert len(first) == 4
    assert others == [first, first]
    assert "--set" not in makefile
    minutes = re.search(r"[\d.]+(?: to [\d.]+)? minutes", "".join(cells[0]["source"]))
    assert minutes is not None
    assert minutes[0] in (ROOT / "README.md").read_text(encoding="utf-8")


def test_pages_stay_short() -> None:
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in PAGES) <= 30_000
    for name, most in (("README.md", 900), ("docs/design.md", 2200)):
        text = (ROOT / name).read_text(encoding="utf-8")
        # Commands and tables are looked at, not read.
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        assert len(prose.split()) <= most, name
    for name, most in MOST_WORDS.items():
        assert len((ROOT / name).read_text(encoding="utf-8").split()) <= most, name
    decisions = (ROOT / "docs/decisions.md").read_text(encoding="utf-8").split("\n## ")[1:]
    for heading, _, text in (decision.partition("\n") for decision in decisions):
        assert len(text.split()) <= 120, heading


def test_every_page_and_note_is_at_most_two_clicks_from_readme() -> None:
    def linked(page: Path) -> set[Path]:
        found = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        return {(page.parent / target.partition("#")[0]).resolve() for target in found}

    first = linked(ROOT / "README.md")
    second = {target for page in first & {*PAGES, *NOTES} for target in linked(page)}
    assert {*PAGES, *NOTES} - first - second - {ROOT / "README.md"} == set()


def test_every_page_of_docs_is_in_the_menu_of_the_site() -> None:
    named = re.findall(r"^  - [^:]+: (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {path.name for path in ROOT.glob("docs/*.md")}
    assert pages | {"index.md", "changelog.md"} == set(named)


def test_the_glossary_of_the_page_is_that_of_the_report() -> None:
    report = (ROOT / "report/templates/glossary.html.j2").read_text(encoding="utf-8")
    page = (ROOT / "docs/reading_results.md").read_text(encoding="utf-8")
    terms = [" ".join(one.split()) for one in page.partition("## Glossary")[2].split("- **")[1:]]
    meant = re.findall(r"<dt>(.+)</dt><dd>(.+)</dd>", report)
    assert terms == [f"{term}**: {meaning}" for term, meaning in meant]


def test_the_pages_of_commands_and_of_experiment_files_list_each_and_no_other() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    shared = (ROOT / "pipeline/cli.py").read_text(encoding="utf-8")
    listed = {}
    for called, row in re.findall(r"^\| `python (?:-m )?([\w.]+)` \|(.*)$", page, re.MULTILINE):
        name = called.removesuffix(".py").replace(".", "/") + ".py"
        listed[name] = (ROOT / name).read_text(encoding="utf-8") + shared
        flags = re.findall(r"`(--[\w-]+)", row)
        assert [flag for flag in flags if f'"{flag}"' not in listed[name]] == [], called
    files = [*ROOT.glob("*.py"), *ROOT.glob("tools/*.py")]
    commands = {str(file.relative_to(ROOT)) for file in files if "__main__" in file.read_text()}
    assert listed.keys() == commands - {"tools/bootstrap.py"}
    page = (ROOT / "docs/configs.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(\.\./((?:configs|benchmarks)/\w+\.yaml)\)", page)
    there = [*ROOT.glob("configs/*.yaml"), *ROOT.glob("benchmarks/*.yaml")]
    assert sorted(linked) == sorted(str(file.relative_to(ROOT)) for file in there)


def test_pages_that_the_code_names_exist() -> None:
    for path in (file for name in FOLDERS - {"tests"} for file in (ROOT / name).rglob("*.py")):
        with tokenize.open(path) as file:
            named = re.findall(r"(?:docs|benchmarks/records)/[\w/]+\.md", file.read())
        assert [name for name in named if not (ROOT / name).exists()] == [], path
