"""What rows have beside others, what is equal, the sentence, and unlike conditions."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nas.statistics.intervals import change_words
from pipeline.baselines import Entry
from pipeline.compare import Row, intervals_of, reference_of, rows_of, saved, unlike_conditions
from tests.runs import write_json

NATS = {"argmax-0": [2.0, 2.02], "interleaved": [1.98, 2.03], "par-5": [2.2, 2.3]}
PARAMETERS = {"argmax-0": 1000, "interleaved": 1031, "par-5": 1029}
FLOPS = {"argmax-0": 500.0, "interleaved": 800.0, "par-5": 500.0}
LATENCY_MS = {"argmax-0": 2.0, "interleaved": 4.0, "par-5": 2.05}


def entries(*names: str) -> list[Entry]:
    blocks = [SimpleNamespace(kind=kind) for kind in ("attention", "dense", "dense", "identity")]
    made: list[Any] = [
        SimpleNamespace(name=name, letters=lambda: "a d d i", blocks=blocks) for name in names
    ]
    roles = ["chosen", *["baseline"] * (len(made) - 1)]
    return [
        Entry(one, role, [] if role == "chosen" else [one.name.partition("-")[0]])
        for one, role in zip(made, roles, strict=True)
    ]


def results(seeds: int) -> dict[str, list[dict[str, Any]]]:
    def of(name: str, nats: float) -> dict[str, Any]:
        scores = {"nats_per_token": nats, "tokens": 100, "bytes": 150}
        sizes = {"parameters": PARAMETERS[name], "flops_per_token": FLOPS[name]}
        return {**sizes, "valid": scores, "test": scores}

    return {name: [of(name, one) for one in nats[:seeds]] for name, nats in NATS.items()}


def rows(latency_ms: Mapping[str, float] = LATENCY_MS, seeds: int = 2) -> list[Row]:
    return rows_of(entries(*NATS), results(seeds), latency_ms)


def test_latency_and_perplexity_stand_beside_those_of_interleaved() -> None:
    searched, interleaved, par = rows()
    assert [row["relative_latency"] for row in (searched, interleaved, par)] == [0.5, 1, 0.5125]
    assert interleaved["relative_perplexity"] == 1
    ratio = searched["perplexity"] / interleaved["perplexity"]
    assert searched["relative_perplexity"] == pytest.approx(ratio)


def test_without_interleaved_they_stand_beside_the_first_row() -> None:
    both = rows_of(entries("argmax-0", "par-5"), results(1), LATENCY_MS)
    assert [row["relative_latency"] for row in both] == [1, 1.025]
    assert reference_of(entries("argmax-0", "par-5")) == 0
    assert saved(both, both[0], NATS) == ""


def test_a_network_that_interleaved_is_too_is_the_reference() -> None:
    named = entries(*NATS)
    named[1].kinds = ["sandwich"]
    named[2].kinds += ["interleaved"]
    assert reference_of(named) == 2


def test_what_is_within_three_per_cent_of_the_chosen_layout_is_equal() -> None:
    assert [row["matched"] for row in rows()] == [
        "parameters FLOPs latency",
        "",
        "parameters FLOPs latency",
    ]
    assert [row["matched"] for row in rows(latency_ms={})] == [
        "parameters FLOPs",
        "",
        "parameters FLOPs",
    ]


def test_the_sentence_is_of_latency_and_without_one_of_flops() -> None:
    ones, others = NATS["argmax-0"], NATS["interleaved"]
    table, title = rows(), "attention first (1 attention, 2 feed-forward)"
    said = change_words(ones, others)
    assert saved(table, table[1], NATS) == f"{title}: at 0.50x of interleaved's latency, {said}"
    table = rows(latency_ms={})
    assert [row["relative_latency"] for row in table] == [None, None, None]
    assert saved(table, table[1], NATS) == f"{title}: at 0.62x of interleaved's FLOPs, {said}"


def test_intervals_are_over_the_seeds_and_of_differences_in_pairs() -> None:
    found = intervals_of("argmax-0", NATS)
    # Two values: the half-width is 12.706 times half of their distance.
    low, high = found["par-5"]["nats_per_token"]
    assert (low, high) == pytest.approx((2.25 - 12.706 * 0.05, 2.25 + 12.706 * 0.05))
    assert found["interleaved"]["chosen_less_it"] == pytest.approx(
        [0.005, 0.005 - 12.706 * 0.015, 0.005 + 12.706 * 0.015]
    )
    assert found["argmax-0"].keys() == {"nats_per_token"}
    assert intervals_of("argmax-0", {name: nats[:1] for name, nats in NATS.items()}) == {}


def test_what_is_shown_is_by_p_values_of_all_baselines() -> None:
    nats = {"mine": [2.0, 2.1, 2.2], "far": [3.0, 3.1, 3.21], "near": [2.1, 2.23, 2.3]}
    found = intervals_of("mine", nats)
    assert [found[name]["shown"] for name in ("far", "near")] == ["better", "better"]
    # Each other baseline asks for more.
    more = nats | {f"more-{at}": [2.1, 2.0, 2.25] for at in range(6)}
    among = intervals_of("mine", more)
    assert [among[name]["shown"] for name in ("far", "near")] == ["better", "nothing"]
    assert among["near"]["chosen_less_it"] == found["near"]["chosen_less_it"]
    assert among["near"]["p"] > 0.05 > found["near"]["p"]


COMMITS = ["0" * 40, "f" * 40]
HERE = {"commit": COMMITS[0], "torch": "2.13.0", "packages": {"numpy": "2.0"}, "device": "cpu",
        "threads": 2, "processor": "p", "micro_batches": 1, "attention": "auto", "ranks": 1,
        "compile": False}  # fmt: skip
HEAD = "not trained under equal conditions: "


def said(folder: Path, **environments: list[dict[str, Any]]) -> str:
    """Of rows whose seeds ran so, beside what is as here."""
    trainings = {name: [folder / name / f"seed-{at}" for at in range(len(each))]
                 for name, each in environments.items()}  # fmt: skip
    for name, each in environments.items():
        for path, changed in zip(trainings[name], each, strict=True):
            write_json(path / "environment.json", HERE | changed)
    return unlike_conditions(trainings)


def test_of_equal_conditions_nothing_is_said(tmp_path: Path) -> None:
    other = {"command": ["x"], "cores": 9}
    resumed = {"resumed": [{"step": 5, "threads": 2}]}
    assert said(tmp_path, a=[other, {}], b=[{}, resumed]) == ""


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"torch": "1.13.0"}, "torch 2.13.0 (a, c), 1.13.0 (b)"),
        ({"device": "NVIDIA H100"}, "device cpu (a, c), NVIDIA H100 (b)"),
        ({"threads": 64}, "threads 2 (a, c), 64 (b)"),
        ({"processor": "q"}, "processor p (a, c), q (b)"),
        ({"ranks": 2}, "ranks 1 (a, c), 2 (b)"),
        ({"micro_batches": 4}, "micro_batches 1 (a, c), 4 (b)"),
        ({"attention": "fused"}, "attention auto (a, c), fused (b)"),
        ({"compile": True}, "compile False (a, c), True (b)"),
        ({"packages": {"numpy": "1.26"}}, "numpy 2.0 (a, c), 1.26 (b)"),
        ({"commit": COMMITS[1]}, f"program {COMMITS[0]} (a, c), {COMMITS[1]} (b)"),
        ({"resumed": [{"step": 5, "threads": 1}, {"step": 6, "threads": 2}]},
         "threads 2 (a, b, c), 1 (b)"),
    ],
)  # fmt: skip
def test_what_differs_is_named_with_the_row(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    assert said(tmp_path, a=[{}], b=[changed], c=[{}]) == f"{HEAD}{words}"


def test_rows_whose_seeds_differ_have_both(tmp_path: Path) -> None:
    assert said(tmp_path, a=[{}, {"threads": 1}], b=[{}, {}]) == f"{HEAD}threads 2 (a, b), 1 (a)"
