"""The rank harness end to end at tiny size: what it trains, what it says, that it comes back."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from benchmarks.layoutbench.__main__ import main
from model import load_architecture
from tests.refusal import refused
from tests.runs import run_jobs_here

SMALL = [
    "--equal", "3", "--free", "3", "--steps", "4", "--seeds", "7,8", "--workers", "2",
    "--set", "retrain.optimiser.warmup_steps=1", "--set", "costs.repeats=3",
]  # fmt: skip


@pytest.fixture
def run(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder with a finished search."""
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    shutil.copytree(undisturbed / "search", tmp_path / "run" / "search")
    return tmp_path / "run"


def prefer(run: Path, choice: list[int]) -> None:
    """Let the search have found this layout, of whose cost there are several."""
    path = run / "search/seed-0/pi.npz"
    with np.load(path) as arrays:
        found = dict(arrays)
    found["alpha"] = np.zeros_like(found["alpha"])
    found["alpha"][:, range(len(choice)), choice] = 3
    np.savez(path, **found)


@pytest.mark.slow
def test_layouts_are_scored_trained_and_ranked_and_the_same_command_trains_nothing_anew(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.layoutbench.making.run_all", run_jobs_here)
    prefer(run, [0, 1, 0, 1])
    assert main(["rank", str(run), *SMALL]) == 0
    folder = run / "rank"
    first = json.loads((folder / "rank.json").read_text())
    with (folder / "rank.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["layout"] for row in rows] == [row["layout"] for row in first["rows"]]
    for row in first["rows"]:
        name = row["layout"].replace(" ", "")
        for seed in (7, 8):
            (path,) = (folder / "layouts" / name / f"seed-{seed}").glob("retrain/*/*/result.json")
            result = json.loads(path.read_text())
            assert result["layout"] == row["layout"]
            assert (result["seed"], result["steps"]) == (seed, 4)
            assert result["test"]["nats_per_token"] == row[f"alone_nats_{seed}"]
            assert result["valid"]["nats_per_token"] == row[f"alone_valid_nats_{seed}"]
        architecture = load_architecture(folder / "layouts" / name / "seed-7" / "architecture.json")
        assert architecture.costs is not None
        assert architecture.costs.flops_per_token == pytest.approx(row["flops_per_token"])
        target = first["target_flops"]
        assert not row["equal"] or abs(row["flops_per_token"] / target - 1) <= 0.03
        assert row["attention"] == row["layout"].count("a")
    for name, group in first["groups"].items():
        own = [row for row in first["rows"] if row[name]]
        assert group["n"] == len(own) == 3
        alone = [(row["alone_nats_7"] + row["alone_nats_8"]) / 2 for row in own]
        tau = kendalltau([row["supernet_nats"] for row in own], alone).statistic
        assert group["supernet"]["tau"] == pytest.approx(tau)
        assert group["verdict"] == "no verdict possible (n = 3 layouts; 20 are the least)"
        assert set(group["trivial"]) >= {"parameters", "FLOPs", "attention slots"}
        seeds = kendalltau(*([row[f"alone_nats_{s}"] for row in own] for s in (7, 8))).statistic
        assert group["agreement"]["tau"] == pytest.approx(seeds)
        assert 0 <= group["ceiling"] <= 1
    assert (folder / "rank.png").read_bytes().startswith(b"\x89PNG")
    assert not list(folder.glob("layouts/**/*.safetensors"))
    said = capsys.readouterr().out
    assert "no verdict possible (n = 3 layouts; 20 are the least)" in said
    assert "3 within 3% of" in said
    assert "training seeds x 4 steps: " in said
    assert "agreement of two trainings  " in said
    assert "a perfect predictor         +" in said

    monkeypatch.setattr("benchmarks.layoutbench.making.run_all", lambda jobs, **rest: _none(jobs))
    assert main(["rank", str(run), *SMALL]) == 0
    again = json.loads((folder / "rank.json").read_text())
    for name, group in first["groups"].items():
        assert again["groups"][name]["supernet"] == group["supernet"]
    capsys.readouterr()
    said = refused(main, capsys, "rank", run, *SMALL, "--set", "model.dropout=0.3")
    assert "seed-0: holds another experiment (model.dropout is 0.1 there and 0.3 here)" in said


def _none(jobs: list[object]) -> None:
    assert jobs == []


def test_a_run_without_a_search_is_told_before_anything_trains(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(main, capsys, "rank", experiment_file, "--run", tmp_path / "run")
    assert "run search.py first" in said
    assert not (tmp_path / "run" / "rank").exists()


def test_a_seed_of_the_search_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(main, capsys, "rank", run, "--seeds", "0,100")
    assert "training seeds 0, 100: 0 is one of the searches' seeds (0), by which" in said
    assert not (run / "rank").exists()
