"""A search that heeds costs: what it begins with, an exact resume, its warning, its words."""

import csv
import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import search
from pipeline.costs import SearchCosts, cost_path
from pipeline.search import search_trainer
from report.curves import cost_figure
from report.run_files import read_trajectory
from tests.pipeline.conftest import Clock, PlanWith
from tests.runs import SEARCH, assert_same, killed_after, refused, rows, run, settings

FLOPS = ["search.cost.name=flops", "search.cost.target=0.7x"]


def arguments(file: Path, folder: Path, *given: str) -> list[Any]:
    return [file, "--run", folder, *settings(*(given or FLOPS))]


def test_a_search_says_what_pi_is_expected_to_cost(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(search, *arguments(experiment_file, tmp_path / "run"))
    folder = tmp_path / "run" / SEARCH
    costs = json.loads((folder / "costs.json").read_text())
    assert costs["reference"] == "a d a d"
    assert costs["most"] == pytest.approx(0.7 * costs["reference_cost"])
    logged = [row for row in rows(folder / "metrics.jsonl") if row["kind"] == "train"]
    arrays = np.load(folder / "pi.npz")
    for row in logged:
        pi_LC = arrays["pi"][row["step"] - 1].astype(float)
        values = [costs["by_label"][str(label)] for label in arrays["labels"]]
        expected = costs["rest"] + float((pi_LC * values).sum())
        assert row["cost_of_bound"] == pytest.approx(expected / costs["most"], rel=1e-5)
    assert logged[-1]["cost_weight"] > 0
    shown = capsys.readouterr().out
    assert re.search(
        r"flops relative to a d a d: \d\.\d{3}x expected by pi, target 0\.700x;", shown
    )
    with (folder / "cost.csv").open() as file:
        path = list(csv.DictReader(file))
    assert len(path) == 30
    assert float(path[-1]["expected"]) / costs["most"] == pytest.approx(
        logged[-1]["cost_of_bound"], rel=1e-5
    )
    figure = cost_figure(folder, read_trajectory(folder / "pi.npz"))
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels[-1] == "target"


def test_a_killed_search_goes_on_with_its_multipliers(
    experiment_file: Path, tmp_path: Path
) -> None:
    both = [*FLOPS, "search.cost.most_nothing=0.2", "search.alpha.warmup_fraction=0.2"]
    run(search, *arguments(experiment_file, tmp_path / "straight", *both))
    killed_after(16, search, *arguments(experiment_file, tmp_path / "killed", *both))
    run(search, *arguments(experiment_file, tmp_path / "killed", *both))
    straight, again = (tmp_path / name / SEARCH for name in ("straight", "killed"))
    assert_same(straight, again)
    weights = [row["cost_weight"] for row in rows(again / "metrics.jsonl") if "cost_weight" in row]
    assert weights[-1] > 0


def test_a_resume_heeds_the_numbers_that_the_search_began_with(
    experiment_file: Path, tmp_path: Path, clock: Clock
) -> None:
    latency = ["search.cost.target=0.7x"]
    run(search, *arguments(experiment_file, tmp_path / "straight", *latency))
    killed_after(16, search, *arguments(experiment_file, tmp_path / "killed", *latency))
    shutil.rmtree(tmp_path / "cache" / "costs")
    measured = len(clock.asked)
    run(search, *arguments(experiment_file, tmp_path / "killed", *latency))
    assert len(clock.asked) == measured, "nothing is measured again"
    assert_same(tmp_path / "straight" / SEARCH, tmp_path / "killed" / SEARCH)


def test_a_search_that_begins_again_drops_out_what_it_did(plan_with: PlanWith) -> None:
    """Killed before its first checkpoint: it reads its costs, whose measurement draws numbers."""
    plan, drawn = plan_with("search.cost.name=cache", *FLOPS[1:]), list[float]()
    for _ in range(2):
        with closing(search_trainer(plan)) as trainer:
            trainer.open()
            drawn.append(torch.rand(()).item())
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["search.cost.target=0.01x", "search.cost.name=flops"], "search.cost.target: "),
        (["search.cost.target=-1"], "0.65x (of search.cost.reference) or 4.5ms"),
        (["search.cost.target=0.5x", "search.cost.name=cache", "search.cost.reference=d d d d"],
         "search.cost.target: 0.5x of d d d d, which costs 0; give bytes"),
        (["search.cost.target=512B", "search.cost.name=cache", "search.cost.reference=d d d d"],
         "search.cost.reference: d d d d costs no cache"),
        (["search.cost.target=5ms", "search.cost.name=flops"], "search.cost.target: expected an"),
        (["search.cost.target=0.7", "search.cost.name=latency"], "search.cost.target: expected an"),
        ([*FLOPS, "search.cost.reference=ratatouille"], "search.cost.reference: "),
        ([*FLOPS, "search.estimator=spos"], "search.cost: needs an alpha that moves"),
        (["search.cost.most_nothing=0.2", "model.candidates=[attention, dense]"],
         "search.cost.most_nothing: every candidate adds something"),
        (["search.cost.name=parameters", "search.cost.target=0.9x", "model.tie_blocks=2"],
         "search.cost.name: parameters do not add up"),
    ],
)  # fmt: skip
def test_what_cannot_be_heeded_is_refused_before_step_0(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str],
    words: str,
) -> None:  # fmt: skip
    line = refused(search, capsys, *arguments(experiment_file, tmp_path / "run", *given))
    assert words in line
    assert not (tmp_path / "run" / SEARCH / "identity.json").exists()


def test_the_path_has_what_pi_and_its_likeliest_candidates_cost() -> None:
    by_label = {"attention": 5.0, "dense": 3.0, "identity": 0.0}
    costs = SearchCosts(name="flops", by_label=by_label, rest=10.0, most=16.0, reference="a a",
                        reference_cost=20.0)  # fmt: skip
    alpha_NLC = np.log([[[0.6, 0.3, 0.1], [0.5, 0.3, 0.2]], [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]])
    arrays = {"alpha": alpha_NLC, "labels": np.array(list(by_label))}
    path = cost_path(arrays, costs)
    column = {name: [row[name] for row in path] for name in path[0]}
    assert column["step"] == [1, 2]
    assert column["argmax"] == [20.0, 13.0]
    assert column["expected"] == pytest.approx([10 + 3.9 + 3.4, 10 + 2.9 + 0.8])
    arrays["alpha"] = np.tile(alpha_NLC, (500, 1, 1))
    assert len(cost_path(arrays, costs)) == 200
