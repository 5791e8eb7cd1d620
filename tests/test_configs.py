"""What is committed is current: experiment files, their schema, the page of options, `make`."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from data.corpora.downloaded import ARCHIVES
from docs.make_options import json_schema, options_page
from model import LanguageModel
from model.blocks import BLOCKS
from nas.baselines import BASELINES, DROPS, PARENT
from nas.derivation import DERIVATIONS
from pipeline.experiment import dump_experiment, load_experiment
from tests.runs import ROOT

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_an_experiment_file_survives_the_round_trip_and_its_supernet_builds(
    path: Path, tmp_path: Path
) -> None:
    experiment = load_experiment(path)
    assert experiment.warnings() == [], "as of a layout that has not a block for every slot"
    (tmp_path / "again.yaml").write_text(dump_experiment(experiment))
    assert load_experiment(tmp_path / "again.yaml") == experiment
    config, vocabulary = experiment.model, experiment.data.tokenizer.ids
    assert vocabulary is not None
    with torch.device("meta"):
        model = LanguageModel(
            [config.completed_candidates()] * config.n_blocks,
            d_model=config.d_model,
            vocabulary_size=vocabulary,
            softmax=config.softmax,
            dropout=config.dropouts(),
        )
    assert sum(parameter.numel() for parameter in model.parameters()) > 0


def test_every_downloaded_corpus_has_an_experiment_file() -> None:
    shown = {load_experiment(path).data.corpus for path in CONFIGS}
    assert "quickstart" in {path.stem for path in CONFIGS}
    assert ARCHIVES.keys() <= shown


def test_the_committed_schema_is_current() -> None:
    committed = (ROOT / "configs" / "experiment.schema.json").read_text(encoding="utf-8")
    assert committed == json_schema(), "run: make schema"


def test_the_schema_offers_what_is_registered() -> None:
    sections = json.loads(json_schema())["$defs"]
    derive, compare = sections["DeriveConfig"], sections["CompareConfig"]
    assert derive["properties"]["method"]["enum"] == list(DERIVATIONS)
    assert compare["properties"]["baselines"]["items"]["enum"] == [
        *DERIVATIONS,
        *(name for name in BASELINES if name not in DERIVATIONS),
        *DROPS,
        PARENT,
    ]
    by_name = sections["ModelConfig"]["properties"]["candidates"]["items"]["anyOf"][0]
    assert by_name == {"enum": list(BLOCKS)}


def test_the_page_of_options_is_current() -> None:
    committed = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert committed == options_page(), "run: make schema"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_alone_lists_every_command_and_makes_nothing(tmp_path: Path) -> None:
    commands = [path for pattern in ("*.py", "tools/*.py") for path in sorted(ROOT.glob(pattern))]
    for path in (ROOT / "Makefile", *commands):
        (tmp_path / path.relative_to(ROOT)).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, tmp_path / path.relative_to(ROOT))
    before = sorted(tmp_path.rglob("*"))
    done = subprocess.run(
        ["make", "PYTHON=false"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(tmp_path.rglob("*")) == before
    listed = dict(
        re.split(r"  +", line, maxsplit=1) for line in done.stdout.splitlines() if "  " in line
    )
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tools = [path.stem for path in commands if path.parent.name == "tools"]
    no_commands = {"__init__", "bootstrap"}
    tools = [name for name in tools if name not in no_commands]
    scripts = ["search.py", "derive.py", "retrain.py", "compare.py", "sweep.py"]
    assert list(listed) == [
        *(f"make {target}" for target in targets.split()),
        *(f"python {script}" for script in scripts),
        *(f"python -m tools.{name}" for name in tools),
    ]
    assert all(len(words) > 7 for words in listed.values())
