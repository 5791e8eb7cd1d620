"""The benchmarks of all kinds: every kind is in them, and what they print follows from the rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks import kinds_alone, layout_rows
from benchmarks.kinds_alone import WORKLOADS, entries, kinds_in_place_of, less, lines_of
from benchmarks.kinds_time import (
    ATTENTION,
    SHAPE,
    SIDES,
    VARIANTS,
    cache_bytes,
    options_of,
)  # fmt: skip
from model import BLOCKS, default_candidates, parse_layout
from pipeline.jobs import Job
from tests.runs import Capture

TINY = replace(SHAPE, d_model=8, d_ffn=16, slots=1, segment=4, memory=8, vocabulary=20)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_side_takes_steps(name: str) -> None:
    for side in SIDES.values():
        step = side(TINY, name)
        for _ in range(4):
            step()


def test_every_kind_is_timed_by_its_name_and_has_the_cache_that_it_keeps() -> None:
    assert {variant.kind for variant in VARIANTS.values()} == set(BLOCKS)
    assert {name for name in VARIANTS if name in BLOCKS} == set(BLOCKS)
    assert options_of(VARIANTS["span_tenth"], 8) == {"span": 9, "first_span": 0.1}
    kept = [cache_bytes(TINY, name) for name in (ATTENTION, "multi_query", "dense")]
    assert kept == [2 * 8 * 8 * 4, 2 * 8 * 8, 0]


def test_each_kind_takes_one_place_in_each_layout() -> None:
    mixers, others = kinds_in_place_of("attention"), kinds_in_place_of("dense")
    assert {*mixers, *others, "attention", "dense", "identity"} == set(BLOCKS)
    found = entries(["aaaddd", "adadad"])
    assert len({entry.layout for entry in found}) == len(found) == 2 * (len(BLOCKS) - 2)
    for entry in found:
        kinds = {slot.kind for slot in parse_layout(entry.layout, default_candidates())}
        kept = "attention" if entry.kind in others else "dense"
        assert kinds == ({entry.kind, kept} if entry.kind else {"attention", "dense"})


def test_differences_are_paired_over_the_seeds_of_both() -> None:
    drawn = np.random.default_rng(0).normal(5.0, 0.1, size=(2, 3))
    ones, others = ({f"{n}": (0.0, float(value)) for n, value in enumerate(of)} for of in drawn)
    low, high = stats.ttest_rel(*drawn).confidence_interval(0.95)
    found = less(ones | {"8": (0.0, 1.0)}, others | {"7": (0.0, 99.0)})
    assert found == f"{(low + high) / 2:+.4f} +- {(high - low) / 2:.4f}"
    assert less({"0": (0.0, 2.0)}, {"0": (0.0, 1.5)}) == "+0.5000 (n = 1)"
    assert less({"0": (0.0, float("inf"))}, others) == "diverged"
    rows = [
        {"layout": layout, "seed": "0", "valid_nats": "4", "test_nats": test,
         "flops_per_token": "1500000"}
        for layout, test in (("ad", "4.5"), ("rd", "4.25"))
    ]  # fmt: skip
    times = {name: {"median_ms": {"ad": 2.0, "rd": 3.0}} for name in WORKLOADS}
    (line,) = (line for line in lines_of(rows, ["ad"], times) if line.startswith("rd"))
    assert line == "rd      routing              1   4.0000   4.2500     -0.2500 (n = 1)" + (
        "   1.500      1.500x      1.500x"
    )


def test_what_has_a_row_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    trained: list[str] = []

    def run_all(jobs: list[Job], *, done: Any, diverged: Any, **_: Any) -> None:
        for number, job in enumerate(jobs):
            trained.append(job.name)
            if number == 3:
                diverged(job, "the loss is no number")
            else:
                done(job)

    monkeypatch.setattr(layout_rows, "run_all", run_all)
    monkeypatch.setattr(layout_rows, "figures_of", lambda job: {"valid_nats": 1, "test_nats": 2})
    file = tmp_path / "x.yaml"
    file.write_text(
        "data: {corpus: pydoc-topics, tokenizer: {kind: bytes}}\n"
        "model: {n_blocks: 2, d_model: 8, d_ffn: 16}\nsearch: {steps: 9}\nretrain: {steps: 9}\n"
    )
    given = ["train", "--experiment", str(file), "--csv", str(tmp_path / "k.csv"), "--bases", "ad"]
    given += ["--run", str(tmp_path / "run"), "--seeds"]
    kinds_alone.main([*given, "0"])
    kinds_alone.main([*given, "0,1"])
    assert len(trained) == len(set(trained)) == 2 * len(entries(["ad"]))
    assert (tmp_path / "k.csv").read_text().count(",inf,inf,") == 2
    with pytest.raises(SystemExit) as ending:
        kinds_alone.main([*given, "0", "--set", "model.d_ffn=24"])
    assert ending.value.code == 2
    assert "model.d_ffn is 16, now 24" in capsys.readouterr().err
