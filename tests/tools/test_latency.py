"""tools.latency: what it prints and keeps, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.costs import cost_model
from tests.pipeline.conftest import Clock, clock, plan_of
from tests.runs import run, settings
from tools import latency

__all__ = ["clock"]


def test_it_measures_every_workload_and_keeps_the_table(
    experiment_file: Path, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "table.json"
    run(latency, experiment_file, "--validate", 4, *settings(f"costs.table={out}"))
    printed = capsys.readouterr().out
    for name in ("latency", "decode", "train_step", "throughput"):
        assert f"{name}, float32, ms\n  rest                    0.4000\n" in printed
    assert "  attention               1.0000\n" in printed
    assert "4 whole layouts held out: mean error 0.0%, Kendall's tau 1.00" in printed
    assert printed.endswith(f"table: {out}\n")
    costs = replace(cost_model(plan_of(experiment_file, tmp_path / "run")), path=out)
    assert costs.kept().workloads.keys() == set(latency.WORKLOADS)
    assert len(clock.asked) == 4
    # stacks, the model without slots, and whole layouts, all in one run
    assert clock.asked[0][:4] == ["rest", "attention", "dense", "identity"]
    assert len(clock.asked[0]) == 4 + 9 + 4


def test_what_whole_layouts_say_of_a_table_is_measured_again_with_it(
    experiment_file: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    run(latency, experiment_file, "--workloads", "latency", "--validate", 4)
    clock.off = 0.3
    for more, count in (([], 4), (["--validate", 2], 4), (["--validate", 6], 6)):
        capsys.readouterr()
        run(latency, experiment_file, "--workloads", "latency", *more)
        assert len(clock.asked[-1]) == 4 + 9 + count
        printed = capsys.readouterr().out
        assert f"{count} whole layouts held out" in printed
        assert f"warning: the table is unreliable: of {count} held-out layouts" in printed
    run(latency, experiment_file, "--workloads", "decode")
    assert len(clock.asked[-1]) == 4 + 9
