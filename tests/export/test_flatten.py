"""The one file of a model's code: it names all it needs, and needs torch and transformers alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from export.huggingface import flatten
from model import BLOCKS

FOREIGN = {"torch", "transformers"}


@pytest.mark.parametrize("kinds", [["attention"], list(BLOCKS)], ids=["one", "all"])
def test_the_file_imports_nothing_but_torch_and_transformers(kinds: list[str]) -> None:
    tree = ast.parse(flatten.modelling_source(kinds))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module}"]
        for name in names:
            top = name.split(".")[0]
            assert top in FOREIGN or top in sys.stdlib_module_names, name


def test_every_name_in_the_file_is_defined_before_it_is_used(tmp_path: Path) -> None:
    paths = []
    for kinds in (["attention", "dense"], list(BLOCKS)):
        paths.append(tmp_path / f"of_{len(kinds)}.py")
        paths[-1].write_text(flatten.modelling_source(kinds))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_file_holds_the_code_of_its_kinds_alone_and_is_always_the_same() -> None:
    text = flatten.modelling_source(["dense", "attention", "dense"])
    assert text == flatten.modelling_source(["attention", "dense"])
    defined = {node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    assert {"AttentionBlock", "DenseBlock", "LanguageModel", "ParnasForCausalLM"} <= defined
    assert not {"RoutingBlock", "GatedDeltaBlock", "Section", "Architecture"} & defined
