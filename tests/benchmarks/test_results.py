"""What the recorded tables of layouts hold: each network once, trained as the experiments say."""

import json

import pytest

from benchmarks.keys import key_of
from benchmarks.layoutbench.table import read_table
from pipeline.experiment import load_experiment
from tests.runs import ROOT

RESULTS = ROOT / "benchmarks/results"


@pytest.mark.parametrize(
    ("name", "seeds"),
    [("layoutbench", 2), ("layoutbench_again", 1), ("layoutbench2", 3), ("layoutbench2_half", 1)],
)
def test_no_recorded_table_holds_a_network_twice(name: str, seeds: int) -> None:
    table = read_table(RESULTS / f"{name}.csv")
    assert {len(nats) for nats in table.nats("test").values()} == {seeds}


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("layoutbench", "layoutbench", []),
        ("layoutbench2", "layoutbench2", []),
        ("layoutbench2_half", "layoutbench2", ["retrain.steps=500"]),
        ("headline", "headline", []),
    ],
)
def test_a_recorded_table_is_that_of_its_experiment(
    name: str, config: str, settings: list[str]
) -> None:
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    key = key_of(load_experiment(ROOT / "configs" / f"{config}.yaml", settings), {})
    assert {section: record.get(section) for section in key} == json.loads(json.dumps(key))
