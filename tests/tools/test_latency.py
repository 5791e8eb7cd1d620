"""tools.latency: what it prints and keeps, and what it refuses."""

import json
from pathlib import Path

import pytest

from nas.costs.table import read_table
from pipeline.costs import cached_table, table_key
from tests.pipeline.conftest import plan_of
from tests.pipeline.test_costs import Clock, clock
from tests.runs import refused, run, settings
from tools import latency

__all__ = ["clock"]


def test_it_measures_every_workload_and_keeps_the_table(
    experiment_file: Path, tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "table.json"
    run(latency, experiment_file, "--validate", 4, "--out", out)
    printed = capsys.readouterr().out
    for name in ("latency", "decode", "train_step", "throughput"):
        assert f"{name}, ms\n  rest                    0.4000\n" in printed
    assert "  attention               1.0000\n" in printed
    assert "4 whole layouts held out: mean error 0.0%, Kendall's tau 1.00" in printed
    assert printed.endswith(f"table: {out}\n")
    plan = plan_of(experiment_file, tmp_path / "run")
    key = table_key(plan)
    assert read_table(cached_table(key), key) == read_table(out, key)
    assert len(clock.asked) == 4
    # stacks, the model without slots, and whole layouts, all in one run
    assert clock.asked[0][:4] == ["rest", "attention", "dense", "identity"]
    assert len(clock.asked[0]) == 4 + 9 + 4


def test_one_workload_is_measured_anew_and_the_others_stay(
    experiment_file: Path, tmp_path: Path, clock: Clock
) -> None:
    run(latency, experiment_file, "--workloads", "latency", "decode")
    run(latency, experiment_file, "--workloads", "decode")
    key = table_key(plan_of(experiment_file, tmp_path / "run"))
    content = json.loads(cached_table(key).read_text())
    assert content["workloads"].keys() == {"latency", "decode"}
    assert len(clock.asked) == 3
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--workloads", "latencie"], "must be one of latency, decode, train_step, throughput"),
        (["--validate", "-1"], "--validate: must be from 0 to 1000, found -1"),
        (settings("costs.repeats=1"), "costs.repeats: must be at least 3"),
    ],
)
def test_what_it_cannot_do_is_one_line(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], given: list[str], words: str
) -> None:
    assert words in refused(latency, capsys, experiment_file, *given)


def test_a_table_that_may_not_be_trusted_is_said(
    experiment_file: Path, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole layouts that take longer the more of their slots are alike, which no sum knows."""
    times_ms = clock.times_ms

    def twisted(self, workload, layouts):
        times = times_ms(self, workload, layouts)
        for name in filter(str.isdigit, layouts):
            times[name] *= 1.0 + 0.5 * (int(name) % 3)
        return times

    clock.times_ms = twisted  # type: ignore[method-assign]
    run(latency, experiment_file, "--workloads", "latency", "--validate", 12)
    printed = capsys.readouterr().out
    assert "warning: the table may not be trusted: of 12 held-out layouts the mean error" in printed
