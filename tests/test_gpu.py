"""A GPU computes what a CPU does, and a training step never waits for it. Skipped without one."""

import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import retrain
from data import EvaluationStreams
from model import LanguageModel
from model.attention_kernels import KERNELS, AttentionInputs
from model.generation import generate
from nas.search.estimators import ESTIMATORS
from tests import tiny
from tests.conftest import without_figures, write_experiment
from tests.nas.search.test_step import make
from tests.runs import LAYOUT, RETRAIN, ROOT, Capture, code_of, killed_after, rows, run, settings
from tests.test_ranks import EVERY_KIND
from training.config import OptimiserConfig
from training.evaluation import evaluate
from training.optim import build_optimiser, rate_of
from training.state import TrainState
from training.step import Forward, WeightStep

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU"),
    pytest.mark.xdist_group("gpu"),
]
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
STEPS = 4
# Waits of the host by slot and pass, of kinds that ask a device what there is to compute.
WAITS = {"adaptive_span": 1, "mixture_of_experts": 1}


def state_on(device: torch.device, model: LanguageModel, config: OptimiserConfig) -> TrainState:
    model = deepcopy(model).to(device).train()
    optimisers = {"weights": build_optimiser(model, config)}
    loss_sum = torch.zeros((), dtype=torch.float64, device=device)
    return tiny.state_of(model, 4, optimisers=optimisers, loss_sum=loss_sum)


def waits_of(call: Callable[[], object]) -> Counter[str]:
    """Where the host waited for the GPU, by line of ours."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return Counter(
        f"{Path(each.filename).name}:{each.lineno}"
        for each in caught
        if "synchroniz" in str(each.message)
    )


def trained(state: TrainState, step: Callable[..., Any]) -> tuple[list[float], Counter[str]]:
    """Losses of some steps, and the waits of the last."""
    losses, found = [], Counter[str]()
    for number in range(STEPS):
        batch, got = tiny.batch(4, 7, seed=number, first=number == 0), {}
        found = waits_of(lambda batch=batch, got=got: got.update(step(state, batch)))
        losses.append(float(got["loss_nats"]))
        state.step += 1
    return losses, found


def same_weights(one: TrainState, two: TrainState) -> None:
    for (name, a), b in zip(one.model.named_parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(
            b.cpu(), a, rtol=1e-3, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def sgd(**options: Any) -> OptimiserConfig:
    return OptimiserConfig.model_validate({"kind": "sgd", "lr": 0.05, "warmup_steps": 0, **options})


@pytest.mark.parametrize(
    "parts", [{}, {"micro_batches": 2, "recompute": True}], ids=["plain", "parts"]
)
@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind["kind"])
def test_a_training_step_is_the_cpus(kind: dict[str, Any], parts: dict[str, Any]) -> None:
    model = tiny.language_model([tiny.candidates(kind)] * 2, dtype=torch.float32)
    config, found = sgd(clip_norm=0.5), []
    for device in (CPU, GPU):
        state = state_on(device, model, config)
        step = WeightStep(Forward(device, "float32", **parts), config, rate_of(config, 10))
        found.append((state, *trained(state, step)))
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-4)
    same_weights(found[0][0], found[1][0])
    passes = 4 if parts else 1
    assert sum(found[1][2].values()) == 2 * passes * WAITS.get(kind["kind"], 0), found[1][2]


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind["kind"])
def test_bfloat16_is_near(kind: dict[str, Any]) -> None:
    model = tiny.language_model([tiny.candidates(kind)] * 2, dtype=torch.float32)
    config, losses = sgd(clip_norm=0.5), []
    for precision in ("float32", "bfloat16"):
        step = WeightStep(Forward(GPU, precision), config, rate_of(config, 10))
        losses.append(trained(state_on(GPU, model, config), step)[0])
    assert losses[1] == pytest.approx(losses[0], rel=0.03)


@pytest.mark.parametrize("kind", ["adamw", "adam", "lamb", "adagrad"])
def test_optimisers_are_the_cpus(kind: str) -> None:
    clipping = {"clip_each_norm": 0.1, "clip_value": 0.1, "eps": 1e-3}
    config = sgd(kind=kind, lr=0.01, **clipping)
    slots = [tiny.candidates("attention"), tiny.candidates("dense")]
    model = tiny.language_model(slots, dtype=torch.float32)
    found = []
    for device in (CPU, GPU):
        state = state_on(device, model, config)
        step = WeightStep(Forward(device, "float32"), config, rate_of(config, 10))
        found.append((state, *trained(state, step)))
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-4)
    same_weights(found[0][0], found[1][0])
    assert not found[1][2], found[1][2]


@pytest.mark.parametrize("data", ["next_batch", "shared"])
@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
def test_a_search_is_the_cpus(estimator: str, data: str) -> None:
    own = "soft" if estimator == "spos" else None
    if own and data == "shared":
        pytest.skip("spos gives alpha no gradient of its own")
    kinds = tiny.candidates("attention", "dense", "identity")
    model, found = tiny.language_model([kinds] * 3, dtype=torch.float32), []
    for device in (CPU, GPU):
        step, state = make(
            6, estimator=estimator, alpha_estimator=own, model=deepcopy(model).to(device).train(),
            rows=4, forward=Forward(device, "float32"), data=data, warmup_fraction=0.0, eps=1e-2,
            optimiser={"kind": "sgd", "lr": 0.05, "warmup_steps": 0, "clip_norm": 0.5},
        )  # fmt: skip
        state.loss_sum = state.loss_sum.to(device)
        found.append((state, *trained(state, step)))
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-4)
    torch.testing.assert_close(
        found[1][0].parameters["alpha"], found[0][0].parameters["alpha"], rtol=1e-3, atol=1e-4
    )
    same_weights(found[0][0], found[1][0])
    assert sum(found[1][2].values()) <= 1, found[1][2]  # alpha's gradient comes to the CPU


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind["kind"])
def test_evaluation_and_generation_are_the_cpus(kind: dict[str, Any]) -> None:
    model = tiny.language_model([tiny.candidates(kind)] * 2, dtype=torch.float32)
    streams = EvaluationStreams(np.arange(90) % tiny.VOCABULARY, streams=3, segment=6)
    nats, texts = [], []
    for device in (CPU, GPU):
        there = deepcopy(model).to(device)
        for cached in (True, False):
            found = evaluate(there, streams, byte_length_V=None, device=device, cached=cached)
            nats.append(found.nats)
        texts.append(generate(there.eval(), [[0, 3, 1, 4]], 12))
    assert nats[1:] == pytest.approx([nats[0]] * 3, rel=1e-4)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", [*KERNELS])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_kernel_of_attention_is_the_cpus_in_float64(name: str, rows: int) -> None:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mask = torch.zeros(rows, 24, 40, dtype=torch.float64)
    mask[:, torch.arange(40)[None] > torch.arange(24)[:, None] + 16] = -torch.inf
    shapes = ((3, 24, 2, 8), (3, 40, 2, 8), (3, 40, 2, 8), (40, 2, 8), (2, 8), (2, 8))
    given = [draw(*shape) for shape in shapes]
    weight, found = draw(3, 24, 2, 8), []
    for device, dtype in ((CPU, torch.float64), (GPU, torch.float64), (GPU, torch.float32)):
        parts = [part.to(device, dtype).detach().requires_grad_() for part in given]
        out = KERNELS[name](AttentionInputs(*parts, mask[:, None].to(device, dtype)), 0.0)
        gradients = torch.autograd.grad((out * weight.to(device, dtype)).sum(), parts)
        found.append([out.detach(), *gradients])
    for exact, double, single in zip(*found, strict=True):
        torch.testing.assert_close(double.cpu(), exact, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(single.cpu().double(), exact, rtol=1e-3, atol=1e-4)


def test_attentions_dropout_keeps_the_mean() -> None:
    parts = [torch.randn(64, 24, 2, 8, device=GPU) for _ in range(3)]
    mask = torch.zeros(1, 24, 24, device=GPU)
    mask[:, torch.ones(24, 24, device=GPU).triu(1).bool()] = -torch.inf
    rest = [torch.randn(24, 2, 8, device=GPU), *[torch.zeros(2, 8, device=GPU)] * 2]
    inputs = AttentionInputs(*parts, *rest, mask[:, None])
    kernel = KERNELS["with_bias"]
    mean = torch.stack([kernel(inputs, 0.2) for _ in range(400)]).mean(0)
    assert float((mean - kernel(inputs, 0.0)).abs().mean()) < 0.03
    assert not torch.equal(kernel(inputs, 0.2), kernel(inputs, 0.2))


# --- whole commands -------------------------------------------------------------------------------


def script(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PARNAS_CACHE": str(folder / "cache")}
    command = [sys.executable, str(ROOT / f"{name}.py"), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.timeout(600)
def test_the_verbs_run_on_a_gpu_and_agree_with_a_cpu(tmp_path: Path) -> None:
    file = write_experiment(tmp_path)
    losses = {}
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        texts = ("model.dropout=0", "derive.method=top_k", "compare.baselines=[interleaved]")
        common = settings(f"run.device={device}", *texts)
        done = script(tmp_path, "search", str(file), "--run", str(folder), *common)
        assert done.returncode == 0, done.stderr[-3000:]
        for name, more in (("derive", ["--workers", "2"]), ("retrain", []), ("compare", [])):
            done = script(tmp_path, name, str(folder), *more)
            assert done.returncode == 0, (name, done.stderr[-3000:])
        environment = json.loads((folder / "search/seed-0/environment.json").read_text())
        assert (environment["device"] == "cpu") == (device == "cpu"), environment["device"]
        found = rows(folder / "search/seed-0/metrics.jsonl")
        losses[device] = [row["loss_nats"] for row in found if "loss_nats" in row]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=2e-3)


def test_a_resume_on_a_gpu_is_exact_to_rounding(tmp_path: Path) -> None:
    arguments = [write_experiment(tmp_path), *LAYOUT, *settings("run.device=cuda")]
    with without_figures(tmp_path):
        run(retrain, *arguments, "--run", tmp_path / "whole")
        killed_after(16, retrain, *arguments, "--run", tmp_path / "cut")
        run(retrain, *arguments, "--run", tmp_path / "cut")
    whole, again = (rows(tmp_path / name / RETRAIN / "metrics.jsonl") for name in ("whole", "cut"))
    assert [row["step"] for row in whole] == [row["step"] for row in again]
    for one, two in zip(whole, again, strict=True):
        numbers = [key for key in one if isinstance(one[key], float)]
        assert [two[key] for key in numbers] == pytest.approx(
            [one[key] for key in numbers], rel=1e-4
        )


def test_out_of_memory_is_one_line_and_code_3(tmp_path: Path, capsys: Capture) -> None:
    arguments = [write_experiment(tmp_path), *LAYOUT, "--run", tmp_path / "run"]
    arguments += settings("run.device=cuda", "model.d_ffn=65536")
    with without_figures(tmp_path):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(1e-4)
        try:
            assert code_of(retrain, *arguments) == 3
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        error = capsys.readouterr().err
        assert "out of memory" in error
        assert "run.micro_batches" in error
        assert "Traceback" not in error
        run(retrain, *arguments)
