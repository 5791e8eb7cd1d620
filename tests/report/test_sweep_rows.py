"""Trials are checked, ordered and named."""

import json
import random
import re

import pytest

from report.sweep.trials import (
    Objective,
    baseline_of,
    counts,
    done,
    ending,
    front,
    parse_rows,
    read_sweep,
    short_keys,
    value_text,
    valueless,
)


def test_done_trials_come_by_value_and_the_others_failed_first(sweeper):
    rows = [
        sweeper.row(0, values=[3.0]),
        sweeper.row(1, state="running", values=None),
        sweeper.row(2, values=[1.0]),
        sweeper.row(3, state="failed", values=None),
        sweeper.row(4, state="waiting", values=None),
        sweeper.row(5, values=[1.0]),
    ]
    checked = parse_rows(rows[::-1])
    assert [row.number for row in done(checked)] == [2, 5, 0]
    assert [row.number for row in valueless(checked)] == [3, 1, 4]
    assert baseline_of(checked).number == 0
    assert counts(checked) == "3 done, 1 failed, 1 running, 1 waiting"
    assert counts([]) == "no trial yet"


def test_the_front_is_what_comparing_all_pairs_finds(sweeper):
    chance = random.Random(1)
    rows = parse_rows(
        [sweeper.row(n, values=[float(chance.randint(0, 9)) for _ in range(3)]) for n in range(60)]
    )
    kept = {row.number for row in front(rows)}
    assert 1 < len(kept) < 60
    for row in rows:
        beaten = False
        for other in rows:
            worse = [b for a, b in zip(row.values, other.values, strict=True) if b > a]
            beaten |= not worse and other.values != row.values
        assert (row.number in kept) == (not beaten)


def test_keys_are_as_short_as_they_can_be():
    keys = ["search.optimiser.rate", "retrain.optimiser.rate", "search.tau.end", "end"]
    assert short_keys(keys) == {
        "search.optimiser.rate": "search.optimiser.rate",
        "retrain.optimiser.rate": "retrain.optimiser.rate",
        "search.tau.end": "tau.end",
        "end": "end",
    }
    assert short_keys(["model.slots", "search.tau.end"], least=2) == {
        "model.slots": "model.slots",
        "search.tau.end": "tau.end",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (None, "null"), (0.0312500001, "0.03125"), (8, "8"), ("step", "step")],
)
def test_values_are_written_as_in_yaml(value, text):
    assert value_text(value) == text


def test_long_keys_keep_their_end():
    assert ending("abcdef", 6) == "abcdef"
    assert ending("abcdefg", 6) == "..defg"


@pytest.mark.parametrize(
    ("name", "value", "text", "unit"),
    [
        ("retrained", 2.01234, "2.0123", "u"),
        ("flops", 2.414e6, "2.41", "MFLOP per token"),
        ("flops", 2.6e9, "2600", "MFLOP per token"),
        ("parameters", 1_234_567, "1.23M", "u"),
    ],
)
def test_objectives_are_written_in_plain_words(name, value, text, unit):
    objective = Objective(name=name, unit="u")
    assert objective.text(value) == text
    assert objective.shown_unit == unit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [{"number": "many"}]}, "rows.0.number"),
        ({"rows": [{"number": 0, "state": "lost"}]}, "rows.0.state"),
        ({"rows": [{"number": 4, "state": "done", "values": [1.0, 2.0]}]}, "trial 4 does not have"),
        ({"objectives": []}, "0 objectives"),
        ({"name": None}, "name"),
    ],
)
def test_a_damaged_sweep_file_is_named_with_the_place(sweeper, tmp_path, change, message):
    path = sweeper.file(tmp_path / "run", **{"rows": [], **change}) / "sweep.json"
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}.*sweep.py"):
        read_sweep(path)


def test_a_value_that_is_no_number_is_refused(sweeper, tmp_path):
    path = sweeper.file(tmp_path / "run", [sweeper.row(0)]) / "sweep.json"
    content = json.loads(path.read_text())
    content["rows"][0]["values"] = [float("nan")]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"rows\.0\.values\.0"):
        read_sweep(path)


def test_a_missing_sweep_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"sweep\.json"):
        read_sweep(tmp_path / "sweep.json")
