"""What a rank harness draws, trains and compares; that it comes back."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from benchmarks.layoutbench.__main__ import main
from benchmarks.layoutbench.rank import equal_layouts, free_layouts, rankings, sample_of
from model import network_of, parse_layout
from nas.derivation.base import Networks
from tests import tiny
from tests.pipeline.conftest import PlanWith
from tests.refusal import refused
from tests.runs import run_jobs_here

THREE = Networks(tiny.candidates("attention", "dense", "identity"), None)
SMALL = [
    "--equal", "3", "--free", "3", "--steps", "4", "--seeds", "7,8", "--workers", "2",
    "--set", "retrain.optimiser.warmup_steps=1", "--set", "costs.repeats=3",
]  # fmt: skip


@pytest.mark.parametrize(("slots", "count"), [(2, 7), (6, 127), (12, 200)])
def test_no_draw_holds_a_network_twice(slots: int, count: int) -> None:
    """Of six slots there are 729 layouts and 1 + 2 + 4 + ... + 64 networks."""
    free = free_layouts(THREE, slots, count, 0)
    assert len({THREE.of(choice) for choice in free}) == len(free) == count
    assert len(free_layouts(THREE, 6, 500, 0)) == 127


@pytest.mark.slow
def test_rearrangements_of_one_network_are_drawn_once() -> None:
    """Of one block among 24 slots there is one network, and 24 layouts."""
    assert len(equal_layouts((0,) + (2,) * 23, THREE, 5, 0, lambda choice: False)) == 1
    shared = Networks(THREE.candidates, 2)
    drawn = equal_layouts((0, 0) + (2,) * 22, shared, 5, 0, lambda choice: False)
    assert len(drawn) == 3, "both by one module, or one by each in either order"


def test_a_search_without_alpha_takes_the_median_cost(plan_with: PlanWith) -> None:
    plan = plan_with("search.estimator=spos")
    sample = sample_of(plan, [0], 3, 4, 0)
    assert sample.target_flops is not None
    assert [len(group) for group in sample.groups.values()] == [3, 4]
    for layout in sample.groups["equal"]:
        assert plan.costs(layout) == pytest.approx(sample.target_flops, rel=0.03)
    assert "median of free layouts" in sample.target
    assert sample == sample_of(plan, [0], 3, 4, 0)


def test_a_network_of_both_groups_is_one_layout(
    plan_with: PlanWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one dense block in three slots there is one network, which both groups draw."""
    plan = plan_with("search.estimator=spos", "model.n_blocks=3")
    monkeypatch.setattr("benchmarks.layoutbench.rank.median_layout", lambda *_: (1, 2, 2))
    for seed in range(4):
        sample = sample_of(plan, [0], 9, 15, seed)
        networks = [network_of(layout, None) for layout in sample.layouts]
        assert len(set(networks)) == len(networks) == 15, "1 + 2 + 4 + 8"
        (equal,) = sample.groups["equal"]
        assert network_of(equal, None) == network_of(parse_layout("d i i", plan.candidates), None)
        assert equal in sample.groups["free"]


def test_the_claim_is_of_the_test_split() -> None:
    cells = {"free": True, "equal": False, "flops_per_token": 1.0, "latency_ms": None}
    rows = [
        {**cells, "attention": 0, "parameters": index, "supernet_nats": float(index),
         "alone_nats_7": float(index), "alone_valid_nats_7": -float(index)}
        for index in range(20)
    ]  # fmt: skip
    (found,) = rankings(rows, [7]).values()
    assert found.supernet.tau == pytest.approx(1)


@pytest.fixture
def run(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder with a finished search, which found a layout of whose cost there are several."""
    monkeypatch.setenv("PARNAS_CACHE", str(undisturbed.parent / "cache"))
    shutil.copytree(undisturbed / "search", tmp_path / "run" / "search")
    path = tmp_path / "run/search/seed-0/pi.npz"
    with np.load(path) as arrays:
        found = dict(arrays)
    found["alpha"] = np.zeros_like(found["alpha"])
    found["alpha"][:, range(4), [0, 1, 0, 1]] = 3
    np.savez(path, **found)
    return tmp_path / "run"


@pytest.mark.slow
def test_layouts_are_scored_trained_and_ranked_and_the_same_command_trains_nothing_anew(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.layoutbench.rank.run_all", run_jobs_here)
    assert main(["rank", str(run), *SMALL]) == 0
    folder = run / "rank"
    first = json.loads((folder / "rank.json").read_text())
    with (folder / "rank.csv").open(newline="") as file:
        assert [row["layout"] for row in csv.DictReader(file)] == [
            row["layout"] for row in first["rows"]
        ]
    for row in first["rows"]:
        trained = folder / "layouts" / row["layout"].replace(" ", "")
        for seed in (7, 8):
            (path,) = (trained / f"seed-{seed}").glob("retrain/*/*/result.json")
            result = json.loads(path.read_text())
            assert (result["layout"], result["seed"]) == (row["layout"], seed)
            assert result["steps"] == 4
            for split, column in (("test", "alone_nats"), ("valid", "alone_valid_nats")):
                assert result[split]["nats_per_token"] == row[f"{column}_{seed}"]
        assert not row["equal"] or abs(row["flops_per_token"] / first["target_flops"] - 1) <= 0.03
        assert row["attention"] == row["layout"].count("a")
    for name, group in first["groups"].items():
        own = [row for row in first["rows"] if row[name]]
        assert group["n"] == len(own) == 3
        alone = [(row["alone_nats_7"] + row["alone_nats_8"]) / 2 for row in own]
        tau = kendalltau([row["supernet_nats"] for row in own], alone).statistic
        assert group["supernet"]["tau"] == pytest.approx(tau)
        assert group["verdict"] == "no verdict possible (n = 3 layouts; 20 are the least)"
        assert set(group["trivial"]) >= {"parameters", "FLOPs", "attention slots"}
    assert (folder / "rank.png").read_bytes().startswith(b"\x89PNG")
    assert not list(folder.glob("layouts/**/*.safetensors"))
    said = capsys.readouterr().out
    for words in ("3 within 3% of", "no verdict possible", "a perfect predictor         +"):
        assert words in said

    def none_left(jobs: list[object], **_: object) -> None:
        assert jobs == []

    monkeypatch.setattr("benchmarks.layoutbench.rank.run_all", none_left)
    assert main(["rank", str(run), *SMALL]) == 0
    again = json.loads((folder / "rank.json").read_text())
    for name, group in first["groups"].items():
        assert again["groups"][name]["supernet"] == group["supernet"]
    capsys.readouterr()
    said = refused(main, capsys, "rank", run, *SMALL, "--set", "model.dropout=0.3")
    assert "seed-0: holds another experiment (model.dropout was 0.1, is 0.3)" in said


def test_what_cannot_be_ranked_is_told_before_anything_trains(
    run: Path, experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(main, capsys, "rank", run, "--seeds", "0,100")
    assert "training seeds 0, 100: 0 is one of the searches' seeds (0), by which" in said
    said = refused(main, capsys, "rank", experiment_file, "--run", tmp_path / "other")
    assert "run search.py first" in said
    assert not (run / "rank").exists()
