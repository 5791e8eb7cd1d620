"""docs/api.md: its code runs from top to bottom, and its tables hold every public name."""

import ast
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from model import load_model
from tests.conftest import without_figures
from tests.runs import RETRAIN, ROOT, Capture
from tests.test_docs import blocks

PAGE = ROOT / "docs/api.md"


def test_its_code_runs_from_top_to_bottom(
    tmp_path: Path,
    experiment_file: Path,
    undisturbed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(undisturbed / RETRAIN / "model", tmp_path / "runs/quickstart/model")
    (tmp_path / "configs").mkdir()
    experiment_file.rename(tmp_path / "configs/quickstart.yaml")
    names: dict[str, Any] = {}
    with without_figures(tmp_path):
        for source in blocks(PAGE, "python"):
            exec(compile(source, PAGE, "exec"), names)
            assert capsys.readouterr().out or "print" not in source
    assert (tmp_path / "runs/from_python/model/result.json").exists()
    found = load_model(tmp_path / "runs/mine/model").state_dict()
    trained = names["model"].state_dict()
    assert all(torch.equal(found[name], trained[name]) for name in trained)


@pytest.mark.parametrize("module", ["model", "data"])
def test_its_tables_hold_the_public_names_and_no_others(module: str) -> None:
    _, _, text = PAGE.read_text(encoding="utf-8").partition(f"## Public names of `{module}`\n")
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|$", text.partition("\n## ")[0], re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))
    tree = ast.parse((ROOT / module / "__init__.py").read_text(encoding="utf-8"))
    public = [name.asname for node in ast.walk(tree) for name in getattr(node, "names", ())]
    assert sorted(named) == sorted(filter(None, public))
