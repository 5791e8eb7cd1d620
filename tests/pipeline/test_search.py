"""Phase 1: what is trained and validated, and what is said and drawn of finished searches."""

import math
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import derive
import search
from model import Agreement
from nas.statistics.agreement import agreement
from pipeline.derive import derive as derive_by
from pipeline.experiment import load_experiment
from pipeline.plan import RunPlan
from pipeline.retrain import retrain_trainer
from pipeline.search import finish_searches, search_trainer
from tests.nas.derivation.test_derivation import write
from tests.pipeline.conftest import PlanWith
from tests.runs import Capture, code_of, refused, run
from tools import corpus
from training.console import Screen
from training.run_dir import claim


def test_a_search_records_the_gradients_of_each_kind(plan_with: PlanWith) -> None:
    trainer = search_trainer(plan_with())
    trainer.state.step = 1
    blocks = [slot.blocks["attention"] for slot in trainer.state.model.slots]
    for block, value in zip(blocks, (3.0, 4.0), strict=False):  # slots 2 and 3 were not drawn
        next(block.parameters()).grad = torch.full_like(next(block.parameters()), value)
    row = trainer.columns(trainer.state)
    numbers = next(blocks[0].parameters()).numel()
    assert row["grad_norm_attention"] == pytest.approx(5.0 * math.sqrt(numbers), rel=1e-5)
    assert row["grad_norm_dense"] == 0
    assert "grad_norm_identity" not in row
    assert row["nothing_share"] == pytest.approx(1 / 3)


def test_split_gives_weights_and_alpha_texts_that_do_not_overlap(plan_with: PlanWith) -> None:
    plan = plan_with("search.alpha.data=split", "search.alpha.share=0.25")
    tokens = torch.from_numpy(plan.prepared.tokens["train"].astype("int64"))
    trainer = search_trainer(plan)
    step: Any = trainer.step

    def text(batches: Any) -> torch.Tensor:
        parts = [batches.batch(i).input_BT for i in range(batches.per_epoch)]
        return torch.cat(parts, dim=1).flatten()

    weights, alpha = text(trainer.batches), text(step.alpha_batches)
    cut = round(len(tokens) * 0.75)
    assert torch.equal(weights, tokens[: len(weights)])
    assert torch.equal(alpha, tokens[cut : cut + len(alpha)])
    assert len(weights) < cut
    assert len(alpha) / (len(weights) + len(alpha)) == pytest.approx(0.25, abs=0.005)


def test_soft_and_one_hot_validation_are_those_nets(plan_with: PlanWith) -> None:
    plan = plan_with()
    trainer = search_trainer(plan)
    state = trainer.state
    with torch.no_grad():
        state.parameters["alpha"].copy_(torch.tensor([[1.0, 0.5, 0.0]] * 4))
    # Before alpha has moved, the one-hot net is whichever candidate stands first.
    state.step = plan.schedules().alpha_start
    assert trainer.nets["onehot"](state) is None
    state.step += 1

    def nats(net: str) -> float:
        evaluation = trainer.nets[net](state)
        assert evaluation is not None
        return evaluation.nats

    soft, one_hot = nats("soft"), nats("onehot")
    assert soft != one_hot
    with torch.no_grad():
        state.parameters["alpha"].mul_(100)
    assert nats("soft") == pytest.approx(one_hot, rel=1e-6)
    assert nats("onehot") == one_hot


def test_epochs_are_passes_over_the_text_of_each_phase(plan_with: PlanWith) -> None:
    settings = [
        "search.alpha.data=split",
        "search.alpha.share=0.5",
        *(
            f"{phase}.{key}"
            for phase in ("search", "retrain")
            for key in ("steps=null", "epochs=3")
        ),
        "retrain.fine_tune={epochs: 0.5, lr: 1e-4}",
    ]
    plan = plan_with(*settings)
    whole, half = plan.training_batches().per_epoch, plan.search_batches[0].per_epoch
    assert abs(2 * half - whole) <= 1
    assert search_trainer(plan).steps == 3 * half
    architecture = derive_by(plan, method="par")
    assert retrain_trainer(plan, architecture).steps == 3 * whole + round(0.5 * whole)


def test_only_a_search_needs_its_steps(
    experiment_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    text = re.sub(r"search:\n(  .*\n)+", "", experiment_file.read_text())
    assert "\nsearch:" not in text
    experiment_file.write_text(text)
    said = refused(search, capsys, experiment_file, "--run", tmp_path / "run")
    assert "search.steps: a search needs steps or epochs" in said
    run(derive, experiment_file, "--run", tmp_path / "run", "--method", "interleaved")
    assert (tmp_path / "run/architecture.json").exists()
    page = corpus.page(load_experiment(experiment_file), tmp_path / "run")
    assert "retrain: 25 steps" in page
    assert "search: " not in page


def test_a_signal_in_the_last_step_still_stops(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Screen.advance

    def interrupting(self: Screen, step: int) -> None:
        advance(self, step)
        if step == 30:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Screen, "advance", interrupting)
        assert code_of(search, experiment_file, "--run", tmp_path / "run") == 130
    run(search, experiment_file, "--run", tmp_path / "run")


def written(plan: RunPlan, alphas: Any) -> RunPlan:
    """Let the searches of seeds 0, 1, ... be done: alpha stands where nobody searched."""
    for seed, alpha_NLC in enumerate(alphas):
        claim(plan.search_folder(seed), plan.search_identity, {})
        path = plan.search_folder(seed) / "pi.npz"
        write(path, alpha_NLC, ["attention", "dense", "identity"])
    return plan


def test_agreement_is_of_the_alpha_that_derive_takes_and_not_of_the_last_step(
    plan_with: PlanWith, capsys: pytest.CaptureFixture[str]
) -> None:
    means = np.random.default_rng(0).normal(size=(2, 4, 3))
    alpha_RNLC = means[:, None].repeat(30, axis=1)
    alpha_RNLC[:, -1] = np.eye(3)[[0, 1, 2, 0]]
    settings = ["derive.average=0.5", "run.figures=false"]
    plan = written(plan_with(*settings), alpha_RNLC)
    finish_searches(plan, [0, 1])
    said = capsys.readouterr().out
    wanted: Agreement = agreement([0, 1], means.argmax(2))
    assert 0 < sum(wanted.blocks) < 4
    blocks = "  ".join(f"{block}: {alike:.0%}" for block, alike in enumerate(wanted.blocks))
    averaged = "the mean alpha of the last 15 of 30 steps of 2 searches"
    assert f"pairs of searches that chose alike, by block ({averaged}): {blocks}\n" in said
