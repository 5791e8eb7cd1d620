"""Layouts known from elsewhere train, scaled down, without a search."""

import json
from pathlib import Path

import pytest

import derive
import retrain
from pipeline.experiment import load_experiment
from tests.runs import ROOT, own_texts, run, settings

KNOWN = sorted(
    path for path in (ROOT / "configs").glob("*.yaml") if "method: layout" in path.read_text()
)
# The candidates stay as they are: spans, vectors and clusters of thousands, in a narrow model.
SMALL = [
    *("run.device=cpu", "run.threads=1", "run.micro_batches=2", "run.validate_every=12"),
    *("data.batch=2", "data.segment=32", "data.evaluation_streams=2", "data.random_offset=false"),
    *("data.evaluation_segment=null", "data.tokenizer={kind: bytes}"),
    *("model.n_blocks=2", "model.d_model=16", "model.d_ffn=24", "model.softmax={tied: false}"),
    *("retrain.steps=12", "retrain.optimiser.lr=0.01", "retrain.optimiser.warmup_steps=4"),
]


@pytest.mark.slow
@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.stem)
def test_a_known_layout_scaled_down_trains_without_a_search(
    experiment_file: Path, tmp_path: Path, path: Path
) -> None:
    experiment = load_experiment(path)
    last_stage = [] if experiment.retrain.fine_tune is None else ["retrain.fine_tune.steps=3"]
    assert experiment.derive.layout is not None
    first_two = "".join(experiment.derive.layout.split()[:2])
    texts = own_texts(experiment_file.parent)
    options = settings(*SMALL, *last_stage, *texts, f"derive.layout={first_two}")
    folder = tmp_path / "run"
    run(derive, path, "--run", folder, *options)
    run(retrain, folder)
    (result,) = folder.glob("retrain/*/seed-0/result.json")
    bits = json.loads(result.read_text())["test"]["bits_per_byte"]
    assert bits < 7, "log2(257) is 8.006"
