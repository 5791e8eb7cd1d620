"""What the recorded tables of layouts hold."""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.keys import key_of
from benchmarks.layoutbench.table import networks_of
from pipeline.experiment import load_experiment

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"


def tables() -> dict[str, list[dict[str, str]]]:
    """The rows of each table that has a column `layout`, but for what searches propose.

    Each search writes a network down as it found it, whatever others do.
    """
    found = {}
    for path in sorted(RESULTS.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if rows and "layout" in rows[0] and "search" not in rows[0]:
            found[path.name] = rows
    return found


def copies(rows: Sequence[Mapping[str, str]], tie_slots: int | None) -> list[str]:
    """The networks that stand there by two layouts, or twice with one seed."""
    letters = [row["layout"].replace(" ", "") for row in rows]
    networks = networks_of(letters, tie_slots)
    by_layout = Counter(networks[layout] for layout in set(letters))
    ways = [
        "seed",
        "share",
        "weights",
        "split",
        "tokens",
        "lr",
        "settings",
        "task",
        "steps",
        "step",
    ]
    keys = [
        (networks[layout], *map(row.get, ways)) for layout, row in zip(letters, rows, strict=True)
    ]
    by_row = Counter(keys)
    return sorted(
        {
            layout
            for layout, key in zip(letters, keys, strict=True)
            if by_layout[key[0]] > 1 or by_row[key] > 1
        }
    )


def tie_slots_of(name: str) -> int | None:
    """`model.tie_slots` of the trainings, from the record beside a table, where there is one."""
    path = (RESULTS / name).with_suffix(".json")
    model = json.loads(path.read_text(encoding="utf-8")).get("model") if path.exists() else None
    return model.get("tie_slots") if isinstance(model, dict) else None


@pytest.mark.parametrize("name", tables())
def test_no_recorded_table_holds_a_network_twice(name: str) -> None:
    assert copies(tables()[name], tie_slots_of(name)) == []


def test_a_copy_is_seen() -> None:
    rows = [{"layout": layout, "seed": "0"} for layout in ("a i d", "a d i", "d d a", "a a d")]
    assert copies(rows, None) == ["adi", "aid"]
    assert copies([rows[0], rows[0]], None) == ["aid"]
    assert copies([rows[0], {**rows[0], "seed": "1"}], None) == []
    assert {"layoutbench.csv", "layoutbench_again.csv"} <= tables().keys()


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
