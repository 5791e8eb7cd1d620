"""The two searches that are known from elsewhere, scaled down, run through all phases."""

import json
from pathlib import Path

import pytest

import compare
import derive
import retrain
import search
from tests.runs import ROOT, own_texts, run, settings

SMALL = [
    "run={log_every: 5, validate_every: 10, checkpoint_every: 10, threads: 1, device: cpu}",
    *("data.batch=4", "data.segment=16", "data.evaluation_streams=4"),
    *("model.n_blocks=5", "model.d_model=16", "model.n_heads=2"),
    *("model.d_ffn=24", "model.memory=8"),
    *("compare.seeds=[0, 1]", "costs.repeats=3"),
]
BOTH = [
    *("data.tokenizer.vocabulary=330", "model.softmax.cutoffs=[100, 200]"),
    *("search.optimiser.warmup_steps=3", "retrain.optimiser.warmup_steps=3"),
]
OF_THE_REPOSITORY = [*BOTH, "search.epochs=0.5", "retrain.epochs=0.5"]
OF_THE_PAPER = [*BOTH, "search.steps=40", "retrain.steps=30"]


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.parametrize(
    ("name", "texts"), [("par_repository", OF_THE_REPOSITORY), ("par_paper", OF_THE_PAPER)]
)
def test_a_known_search_scaled_down_runs_through_all_phases(
    experiment_file: Path, tmp_path: Path, name: str, texts: list[str]
) -> None:
    folder = tmp_path / "run"
    options = settings(*SMALL, *own_texts(experiment_file.parent), *texts)
    run(search, ROOT / f"configs/{name}.yaml", "--run", folder, *options)
    for script in (derive, retrain, compare):
        run(script, folder)
    comparison = json.loads((folder / "comparison.json").read_text())
    assert len(comparison["rows"]) >= 3
    assert all(row["n"] == 2 for row in comparison["rows"])
    lossy = name == "par_repository"
    assert all((row["bits_per_byte"] is None) == lossy for row in comparison["rows"])
    assert (folder / "report.html").exists()
