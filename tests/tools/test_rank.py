"""The rank harness end to end at tiny size: what it trains, what it says, that it comes back."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from model import load_architecture
from tests.refusal import refused
from tests.runs import run_jobs_here
from tools import rank

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
    monkeypatch.setattr("pipeline.jobs.run_all", run_jobs_here)
    prefer(run, [0, 1, 0, 1])
    assert rank.main([str(run), *SMALL]) == 0
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

    monkeypatch.setattr("pipeline.jobs.run_all", lambda jobs, **rest: _none(jobs))
    assert rank.main([str(run), *SMALL]) == 0
    again = json.loads((folder / "rank.json").read_text())
    for name, group in first["groups"].items():
        assert again["groups"][name]["supernet"] == group["supernet"]
    capsys.readouterr()
    said = refused(rank.main, capsys, run, *SMALL, "--set", "model.dropout=0.3")
    assert "seed-0: holds another experiment (model.dropout is 0.1 there and 0.3 here)" in said


def _none(jobs: list[object]) -> None:
    assert jobs == []


def test_a_run_without_a_search_is_told_before_anything_trains(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(rank.main, capsys, experiment_file, "--run", tmp_path / "run")
    assert "run search.py first" in said
    assert not (tmp_path / "run" / "rank").exists()


def test_a_seed_of_the_search_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(rank.main, capsys, run, "--seeds", "0,100")
    assert "training seeds 0, 100: 0 is one of the searches' seeds (0), by which" in said
    assert not (run / "rank").exists()


@pytest.mark.parametrize("content", ["[]", "{", "\xff"])
def test_a_damaged_key_ends_in_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (run / "rank").mkdir()
    (run / "rank/key.json").write_bytes(content.encode("latin-1"))
    said = refused(rank.main, capsys, run, *SMALL, "--equal", "0").strip().splitlines()
    assert "key.json: " in said[-1]
    assert "give another" in said[-1]
    assert (run / "rank/key.json").read_bytes() == content.encode("latin-1")


def test_without_options_20_layouts_of_each_group_are_drawn() -> None:
    found = rank.parse(["runs/x"])
    assert (found.equal, found.free, found.seeds, found.steps) == (20, 20, None, None)


def test_weights_that_are_gone_are_told_before_anything_trains(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "search/seed-0/last.safetensors").unlink()
    assert "last.safetensors: not found" in refused(rank.main, capsys, run, *SMALL)
    assert not (run / "rank").exists()


@pytest.mark.parametrize(
    "arguments",
    [["--equal", "-1"], ["--equal", "1", "--free", "0"], ["--steps", "0"], ["--workers", "0"],
     ["--seeds", "1,1"], ["--target-flops", "0"], ["--target-flops", "nan"]],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert arguments[0] in refused(rank.main, capsys, "runs/x", *arguments)
