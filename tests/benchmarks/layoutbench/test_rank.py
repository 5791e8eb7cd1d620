"""What a rank harness draws, trains and compares, without training anything."""

from typing import Any

import numpy as np
import pytest

from benchmarks.layoutbench.rank import Ranked, Sample, rankings, sample_of
from model import layout_letters, network_of, parse_layout
from nas.statistics.paired_scores import Score
from pipeline.plan import RunPlan
from pipeline.supernet_scores import SupernetScores
from tests.pipeline.conftest import PlanWith
from training.signals import StopRequest

SPOS = "search.estimator=spos"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been trained."""
    asked: list[Any] = []
    monkeypatch.setattr(
        "benchmarks.layoutbench.making.run_all", lambda jobs, **rest: asked.extend(jobs)
    )
    return asked


def ranked_of(plan: RunPlan, sample: Sample, *, steps: int | None = None) -> Ranked:
    return Ranked(plan, sample, [0], [7, 8], steps, plan.run_dir / "rank")


def test_a_search_without_alpha_takes_the_median_cost(plan_with: PlanWith) -> None:
    plan = plan_with(SPOS)
    sample = sample_of(plan, [0], 3, 4, 0)
    cost = plan.costs
    assert sample.target_flops is not None
    assert [len(group) for group in sample.groups.values()] == [3, 4]
    for layout in sample.groups["equal"]:
        assert cost(layout) == pytest.approx(sample.target_flops, rel=0.03)
    assert "median of free layouts" in sample.target
    assert sample == sample_of(plan, [0], 3, 4, 0)


def test_no_sample_and_no_table_holds_a_network_twice(
    plan_with: PlanWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one dense block in three slots there is one network, which both groups draw."""
    plan = plan_with(SPOS, "model.slots=3")
    monkeypatch.setattr("benchmarks.layoutbench.rank.median_layout", lambda *_: (1, 2, 2))
    scored: list[str] = []

    def score(self: SupernetScores, layout: Any) -> Score:
        scored.append(layout_letters(layout))
        return Score(np.array([1.0, 2.0]), np.array([1.0, 1.0]))

    monkeypatch.setattr(SupernetScores, "score", score)
    for seed in range(4):
        sample = sample_of(plan, [0], 9, 15, seed)
        networks = [network_of(layout, None) for layout in sample.layouts]
        assert len(set(networks)) == len(networks) == 15
        assert len(sample.groups["free"]) == 15, "1 + 2 + 4 + 8"
        assert {network_of(layout, None) for layout in sample.groups["equal"]} == {
            network_of(parse_layout("d i i", plan.candidates), None)
        }
        found = [sample.groups_of(layout) for layout in sample.layouts]
        assert sum(groups["equal"] for groups in found) == 1
        assert sum(groups["free"] for groups in found) == 15
        scored.clear()
        ranked = ranked_of(plan, sample, steps=4)
        ranked.open()
        assert len(ranked.scores) == 15
        assert set(scored) == {layout_letters(layout) for layout in sample.drawn}


def test_a_network_that_was_trained_by_its_other_layout_is_not_trained_again(
    plan_with: PlanWith, jobs: list[Any]
) -> None:
    plan = plan_with()
    one, two, other = (
        parse_layout(letters, plan.candidates) for letters in ("d i i a", "i d a i", "a d i i")
    )
    sample = Sample(None, "", {"equal": [one], "free": [other, two]})
    assert sample.layouts == [one, other]
    assert sample.groups_of(one) == {"equal": True, "free": True}
    ranked = ranked_of(plan, sample, steps=4)
    ranked.train(workers=1, stop=StopRequest())
    assert [job.folder.parent.name for job in jobs] == ["diia", "adii"] * 2
    (ranked.folder / "layouts" / "idai" / "seed-7").mkdir(parents=True)
    jobs.clear()
    ranked.train(workers=1, stop=StopRequest())
    assert [job.folder.parent.name for job in jobs] == ["idai", "adii"] * 2


def test_the_claim_is_of_the_test_split() -> None:
    rows = [
        {
            "free": True,
            "equal": False,
            "parameters": index,
            "flops_per_token": 1.0,
            "latency_ms": None,
            "attention": 0,
            "supernet_nats": float(index),
            "alone_nats_7": float(index),
            "alone_valid_nats_7": -float(index),
        }
        for index in range(20)
    ]
    (found,) = rankings(rows, [7]).values()
    assert found.supernet.tau == pytest.approx(1)
