"""The benchmarks of devices run at tiny sizes on the CPU; figures come from a stand-in for time."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import attention_paths, compile_time, device_step
from benchmarks.device_step import choices, figures, matmul_gflops, peak_mb, step_on
from benchmarks.harness import Side, Timings
from benchmarks.sides import arithmetic
from benchmarks.step_time import SIZES, Shape
from tests.benchmarks.test_reference import TINY
from training.state import TrainState


def each_once(sides: Mapping[str, Side], **_: Any) -> Timings:
    """Takes one step of each side and says that it took half a second."""
    for side in sides.values():
        side.make(*side.arguments)()
    return Timings({name: [0.5, 0.5] for name in sides})


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.harness.in_turn", each_once)
    for name in SIZES:
        monkeypatch.setitem(SIZES, name, TINY)


@pytest.mark.usefixtures("_tiny")
def test_every_kernel_is_timed(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert (
        attention_paths.main(["--shapes", "paper", "--dtype", "bfloat16", "--json", f"{path}"]) == 0
    )
    found = json.loads(path.read_text())
    assert found["claim"] == "attention_paths_cpu_bfloat16"
    (row,) = found["shapes"]
    assert set(row["paths"]) == {"with_bias", "fused"}
    assert row["shape"] == json.loads(json.dumps(asdict(TINY)))


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_path_takes_training_steps(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_step, "peak_mb", lambda given: 7.0)
    path = tmp_path / "found.json"
    options = ["--device", "cpu", "--compiled", "no", "--batch", "2", "--json", str(path)]
    assert device_step.main([*options, "--precision", precision]) == 0
    found = json.loads(path.read_text())
    assert set(found["sides"]) == {"with_bias", "fused"}
    side = found["sides"]["fused"]
    tokens_per_s = 2 * TINY.segment / 0.5
    assert side["tokens_per_s"] == tokens_per_s
    flops = arithmetic(replace(TINY, batch=2))["ours"]
    share = tokens_per_s * flops / 1e9 / found["matmul_gflops"]
    assert side["share_of_matmul"] == pytest.approx(share)
    assert side["peak_mb"] == 7.0


def gradients(shape: Shape, path: str) -> dict[str, torch.Tensor]:
    """Those of the second step, which reads a full memory."""
    take = step_on(shape, "cpu", "float32", path, compiled=False)
    for _ in range(2):
        take()
    cells = [cell.cell_contents for cell in take.__closure__ or ()]
    (state,) = (found for found in cells if isinstance(found, TrainState))
    return {name: p.grad for name, p in state.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["small", "large"])
def test_paths_give_the_same_gradients_at_the_sizes_used(name: str) -> None:
    """Of each weight, u and v among them, which start at 0 and move no loss in a few steps."""
    shape = replace(SIZES[name], slots=2, batch=4, vocabulary=300, cutoffs=(100,))
    wanted = gradients(shape, "with_bias")
    assert wanted["slots.0.blocks.attention.v_HK"].norm() > 0
    found = gradients(shape, "fused")
    assert found.keys() == wanted.keys()
    for key, gradient in found.items():
        assert (gradient - wanted[key]).norm() <= 1e-3 * wanted[key].norm(), key


def test_the_papers_size() -> None:
    paper = SIZES["paper"]
    assert (paper.d_model, paper.slots, paper.n_heads, paper.d_ffn) == (512, 32, 8, 2048)
    assert paper.segment == paper.memory == 192


def test_sides_and_figures() -> None:
    assert [name for name, *_ in choices(None, "both")] == [
        *("with_bias", "with_bias, compiled", "fused"),
    ]
    assert choices(["with_bias"], "yes") == [("with_bias, compiled", "with_bias", True)]
    shape: Shape = TINY
    assert figures(shape, 100.0, 1.0)["tokens_per_s"] == 10 * shape.batch * shape.segment
    assert matmul_gflops("cpu", "float32", size=64) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("_tiny")
def test_a_compiled_step_is_timed(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert compile_time.main(["--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert set(found["sides"]) == {"as it is", "with_bias", "compiled"}
    assert found["first_steps_s"] > 0


@pytest.mark.slow
def test_the_peak_of_a_process_is_found() -> None:
    assert 50 < peak_mb((TINY, "cpu", "float32", "fused", False)) < 5000
