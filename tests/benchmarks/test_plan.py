"""The dry run of sizes: what was counted by other means, every kind, and what it refuses."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks import plan, plan_bound
from benchmarks.counting import META, Work, counted_step
from benchmarks.harness import Timings
from benchmarks.shapes import SHAPES, SIZES
from benchmarks.sides import ADAM, our_model, zipf_batches
from tests import tiny
from tests.runs import ROOT, Capture, code_of
from tests.test_ranks import EVERY_KIND
from training.step import Forward

QUICK = str(ROOT / "configs/quickstart.yaml")


def work_of(kind: dict[str, Any], precision: str, **options: Any) -> Work:
    def make() -> Any:
        return tiny.language_model([tiny.candidates(kind)] * 2, dtype=torch.float32)

    return counted_step(make, tiny.batch(4, 7).input_BT, Forward(META, precision, **options), ADAM)


def test_the_papers_size_is_what_another_count_found() -> None:
    """By a CUDA backend on a CPU; the H200 took 18.2 GB for 128 streams, twice as many."""
    shape = replace(SIZES["paper"], batch=64)
    ids_BT = zipf_batches(shape).batch(0).input_BT
    work = counted_step(lambda: our_model(shape), ids_BT, Forward(META, "bfloat16"), ADAM)
    assert work.flops == pytest.approx(5.3e12, rel=0.2)
    assert work.moved_bytes == pytest.approx(74e9, rel=0.2)
    assert work.launches == pytest.approx(1840, rel=0.2)
    assert work.peak_bytes == pytest.approx(9.5e9, rel=0.2)


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind["kind"])
def test_every_kind_has_a_count(kind: dict[str, Any]) -> None:
    wide, again = work_of(kind, "float32"), work_of(kind, "bfloat16", recompute=True)
    # Casts are kernels too, and what is computed twice is launched twice.
    assert 0 < wide.launches < again.launches
    assert wide.flops <= again.flops
    assert wide.peak_bytes >= sum(wide.memory[name] for name in ("weights", "moments"))


def test_a_norm_of_queries_and_keys_is_one_kernel_each() -> None:
    """Two blocks have 10 launches more; taken apart, as without a GPU, RMSNorm has 84."""
    plain, normed = (
        work_of({"kind": "attention", "qk_norm": norm}, "float32").launches
        for norm in (False, True)
    )
    assert 0 < normed - plain < 20


def test_a_bound_is_that_of_its_slowest_part() -> None:
    work = Work(1, {}, 1, [(2e12, 10), (0.0, 10**9)], 100)
    card = plan.Card({"float32": 1.0}, gb_per_s=1.0, gb=1.0, us_per_launch=1e4)
    assert plan.seconds(work, card) == (3.0, {"compute": 2.0, "bandwidth": 1.0, "launches": 1.0})
    assert plan.seconds(work, replace(card, us_per_launch=1e5))[0] == 10.0
    assert plan.seconds(work, replace(card, waits=True))[0] == 4.0


@pytest.mark.parametrize(("times", "code"), [(0.9, 1), (1.1, 0), (1.9, 0), (2.1, 1)])
def test_a_bound_is_kept_and_near(
    times: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    found = Timings({name: [9.0, 0.1 * times] for name in SHAPES})
    monkeypatch.setattr("benchmarks.harness.in_turn", lambda *_, **__: found)
    monkeypatch.setattr("benchmarks.counting.counted_step", lambda *_: None)
    monkeypatch.setattr(plan, "measured_cpu", lambda precision: plan.CARDS["t4"])
    monkeypatch.setattr(plan, "seconds", lambda *_: (0.1, {"launches": 0.1}))
    assert plan_bound.main([]) == code
    line = f"{100 * times:.1f} ms, bound 100.0 (launches 100.0): {times:.2f}"
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("estimator", ["auto", "two_path"])
def test_the_whole_experiment_is_foreseen(estimator: str, capsys: Capture) -> None:
    assert plan.main([QUICK, "--device", "h100", "--set", f"search.estimator={estimator}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "bound by launches" in lines[4]
    assert [line.split(":")[0] for line in lines[5:]] == ["search", "derive", "retrain", "compare"]
    assert "derive: trained, 10 trainings" in lines[6]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "h9"), "must be one of t4, v100"),
        (("--device", "tflops=1,gb=2"), "must be tflops=N"),
        (("--device", "tflops=1,gb=2,gb_per_s=0"), "must be tflops=N"),
        (("--device", "t4", "--set", "run.precision=bfloat16"), "t4 has no bfloat16"),
        (("--device", "cpu", "--set", "run.precision=tf32"), "cpu has no tf32"),
        (("--set", "retrain.steps=null", "--set", "retrain.epochs=2"), "--tokens: "),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: tuple[str, ...], words: str, capsys: Capture
) -> None:
    assert code_of(plan, QUICK, *arguments) == 2
    refused = capsys.readouterr().err.splitlines()
    assert words in refused[-1]
    assert not [line for line in refused[:-1] if line != "loading torch"]
