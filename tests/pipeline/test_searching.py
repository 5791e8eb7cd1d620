"""What a search found serves its own text and experiment alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import compare
import derive
import retrain
from model import load_architecture
from nas.derivation import RULES, SEARCHED
from tests.refusal import refused
from tools import rank


def another_text(run: Path) -> tuple[Any, ...]:
    """The arguments of a command in a run whose training text has got a line more."""
    train = (run.parent / "train.txt").read_text(encoding="utf-8")
    path = run.parent / "other.txt"
    path.write_text(f"{train}kan sel.\n", encoding="utf-8")
    return (run, "--set", f"data.files.train={path}")


@pytest.mark.parametrize("method", SEARCHED)
def test_no_layout_is_derived_from_the_pi_of_another_text(
    searched: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(derive.main, capsys, *another_text(searched), "--method", method)
    line = said.splitlines()[-1]
    assert line.startswith(f"{searched / 'search/seed-0'}: was begun with another text (its hash")
    assert line.endswith("or another --run directory; in a new one search.py comes first")
    assert not (searched / "architecture.json").exists()
    assert not (searched / "architectures").exists()


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (retrain.main, ["--layout", "argmax"]),
        (compare.main, ["--set", "compare.opponents=[argmax]"]),
        (rank.main, ["--equal", "3", "--free", "0"]),
        (rank.main, ["--equal", "0", "--free", "3"]),
    ],
)
def test_no_command_reads_a_search_of_another_text(
    searched: Path, main: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert derive.main([str(searched), "--method", "interleaved"]) == 0
    said = refused(main, capsys, *another_text(searched), *arguments)
    assert f"{searched / 'search/seed-0'}: was begun with another text" in said


def test_each_of_several_searches_is_looked_at(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(searched / "search/seed-0", searched / "search/seed-1")
    assert derive.main([str(searched), "--seeds", "0,1"]) == 0
    path = searched / "search/seed-1/identity.json"
    identity = json.loads(path.read_text())
    identity["search"]["alpha"]["eps"] = 0.1
    path.write_text(json.dumps(identity))
    said = refused(derive.main, capsys, searched, "--seeds", "0,1")
    assert f"{path.parent}: holds another experiment (search.alpha.eps is 0.1 there" in said
    path.unlink()
    said = refused(derive.main, capsys, searched, "--seeds", "0,1")
    assert f"{path}: not found, so nothing says of which text pi is; start search.py again" in said


@pytest.mark.parametrize("method", [name for name in RULES if name != "layout"])
def test_a_rule_needs_no_search_and_takes_any_text(searched: Path, method: str) -> None:
    arguments = [*map(str, another_text(searched)), "--method", method, "--set", "derive.k=1"]
    assert derive.main(arguments) == 0
    assert load_architecture(searched / "architecture.json").letters()


@pytest.mark.parametrize(
    "setting",
    ["derive.average=0.5", "retrain.steps=7", "compare.seeds=[1,2]", "run.validate_every=3"],
)
def test_what_comes_after_the_search_may_change(searched: Path, setting: str) -> None:
    assert derive.main([str(searched), "--set", "derive.gap=false", "--set", setting]) == 0
