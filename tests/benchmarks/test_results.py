"""What the recorded tables of layouts hold."""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from nas.tabular.table import networks_of

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results"


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
    ways = ("seed", "share", "weights", "split", "tokens")
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
