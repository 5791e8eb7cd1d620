"""Tables of a run's times: measured once, kept, refused, and measured anew."""

from pathlib import Path
from typing import Any

import pytest

import derive
from nas.costs import model as costs_of_layouts
from nas.costs.latency import Unsteady
from pipeline.costs import cost_model, table_key
from tests.pipeline.conftest import MS, Clock, PlanWith
from tests.pipeline.test_costs import derived
from tests.runs import refused, settings
from utils.files import read_object


def test_a_table_is_measured_once_and_read_from_the_cache(
    plan_with: PlanWith, clock: Clock
) -> None:
    plan = plan_with()
    table = cost_model(plan).table(["latency"])
    assert table.workloads["latency"].by_label_ms == pytest.approx(MS)
    assert len(clock.asked) == 1
    assert cost_model(plan).table(["latency"]) == table
    assert len(clock.asked) == 1
    both = cost_model(plan).table(["latency", "decode"])
    assert len(clock.asked) == 2
    assert both.workloads.keys() == {"latency", "decode"}
    assert cost_model(plan).path.exists()


@pytest.mark.parametrize(
    "setting",
    ["costs.batch=2", "data.segment=8", "model.d_ffn=48", "model.memory=4", "costs.repeats=4",
     "run.precision=bfloat16", "model.n_blocks=5", "retrain.optimiser.kind=sgd", "data.batch=5",
     "model.dropout=0.2", "model.dropout_attention=0.1", "run.micro_batches=2",
     "run.recompute=true", "run.attention=fused", "retrain.optimiser.clip_norm=null",
     "retrain.optimiser.clip_each_norm=1", "retrain.optimiser.clip_value=1",
     "retrain.optimiser.weight_decay=0"],
)  # fmt: skip
def test_other_shapes_have_another_table(plan_with: PlanWith, setting: str) -> None:
    assert table_key(plan_with()) != table_key(plan_with(setting))


def test_what_no_time_depends_on_has_the_same_table(plan_with: PlanWith) -> None:
    same = plan_with("run.seed=3", "search.steps=40", "retrain.optimiser.lr=0.1",
                     "retrain.optimiser.clip_norm=0.5")  # fmt: skip
    assert table_key(plan_with()) == table_key(same)


def test_a_table_that_may_not_be_trusted_is_warned_of_wherever_it_comes_from(
    plan_with: PlanWith, clock: Clock, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    clock.off = 0.3
    plan = plan_with()
    given = tmp_path / "given.json"
    for one in (plan, plan, plan_with(f"costs.table={given}")):
        capsys.readouterr()
        table = cost_model(one).table(["latency"])
        assert "warning: latency: the table is unreliable: " in capsys.readouterr().err
        given.write_text(table.model_dump_json())


def test_unsteady_times_are_one_line_and_nothing_is_written(
    searched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsteady(*_: Any, **__: Any) -> Any:
        raise Unsteady("times vary too much: by 12%")

    monkeypatch.setattr(costs_of_layouts, "time_in_turn", unsteady)
    line = refused(derive, capsys, searched, *settings("derive.budget.latency=0.9x"))
    assert line == "times vary too much: by 12%"
    assert not (searched / "architecture.json").exists()
    assert not [*(searched.parent / "cache").glob("costs/*")]


def test_a_given_table_must_be_of_this_machine_and_what_it_lacks_is_added(
    searched: Path, clock: Clock, capsys: pytest.CaptureFixture[str], plan_with: PlanWith
) -> None:
    derived(searched, *settings("derive.budget.latency=0.7x"))
    (cached,) = (searched.parent / "cache").glob("costs/*.json")
    given = settings(f"costs.table={cached}", "derive.budget.latency=0.7x")
    measured = len(clock.asked)
    derived(searched, *given)
    assert len(clock.asked) == measured + 1, "whole layouts alone"
    line = refused(derive, capsys, searched, *given, *settings("costs.batch=2"))
    assert line == (
        f"{cached}: of other conditions: batch was 1, is 2; give costs.table another name, or "
        "leave it out to measure here"
    )
    derived(searched, *given, *settings("derive.budget.decode=0.7x"))
    assert read_object(cached)["workloads"].keys() == {"latency", "decode"}
