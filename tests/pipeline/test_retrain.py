"""Phase 2: the model folder, the result, and what a fault in either would lose."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import compare
import derive
import retrain
import search
import sweep
from model import Dropout, ModelOptions, load_architecture, load_model
from pipeline.baselines import entries_of
from pipeline.retrain import finish_retrain, retrain_all, retrain_trainer
from pipeline.search import search_trainer
from tests.pipeline.conftest import plan_of
from tests.refusal import refused
from tests.runs import assert_same, killed_after, rows, settings
from tests.test_pipeline import run
from training.trainer import Trainer
from utils.files import read_object


@pytest.fixture
def retrained(derived: Path) -> Path:
    """A run with a derived layout that is retrained."""
    run(retrain, derived)
    return derived


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_retraining_has_the_experiments_dropout(experiment_file: Path, tmp_path: Path) -> None:
    plan = plan_of(experiment_file, tmp_path, "model.dropout=0.37", "model.dropout_dense=0.2")
    run(derive, experiment_file, "--run", tmp_path / "d", "--method", "interleaved")
    trainer = retrain_trainer(plan, load_architecture(tmp_path / "d/architecture.json"))
    assert trainer.state.model.dropout == Dropout(residual=0.37, embedding=0.37, dense=0.2)
    assert {slot.dropout for slot in trainer.state.model.slots} == {0.37}


def test_the_best_step_is_tested_and_saved_not_the_last(
    experiment_file: Path, tmp_path: Path
) -> None:
    plan = plan_of(experiment_file, tmp_path / "run", "run.validate_every=5")
    run(derive, experiment_file, "--run", tmp_path / "run", "--method", "interleaved")
    architecture = load_architecture(tmp_path / "run/architecture.json")
    trainer = retrain_trainer(plan, architecture)
    trainer.open()
    inner = trainer.step

    def spoiled(state: Any, batch: Any) -> Any:
        metrics = inner(state, batch)
        if state.step >= 12:
            with torch.no_grad():
                for parameter in state.model.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
        return metrics

    trainer.step = spoiled
    trainer.run(plan.experiment.run)
    finish_retrain(plan, trainer, architecture)
    result = json.loads((trainer.folder / "result.json").read_text())
    assert result["best_step"] == 10
    assert result["validations"] == 5
    model = load_model(trainer.folder / "model")
    again = plan.evaluate(model, plan.streams("valid"))
    assert again.nats_per_token == pytest.approx(result["valid"]["nats_per_token"], abs=1e-9)
    lines = (trainer.folder / "metrics.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    nats = {row["step"]: row["nats_per_token"] for row in logged if row["kind"] == "valid"}
    assert min(nats, key=lambda step: nats[step]) == 10
    assert result["valid"]["nats_per_token"] == pytest.approx(nats[10], abs=1e-9)
    assert nats[25] > nats[10]


def test_several_seeds_are_one_command_and_keep_their_model_once(
    derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [derived / f"retrain/layout-addi/seed-{seed}" for seed in (0, 1)]
    run(retrain, derived, "--seeds", "0,1")
    nats = [json.loads((one / "result.json").read_text())["test"] for one in folders]
    assert nats[0] != nats[1]
    before = [path.stat().st_mtime_ns for one in folders for path in one.iterdir()]
    # As a kill after the result leaves it.
    (folders[1] / "last.safetensors").write_text("")
    capsys.readouterr()
    run(retrain, derived, "--seeds", "0,1")
    for one in folders:
        names = [path.relative_to(one).as_posix() for path in one.rglob("*.safetensors")]
        assert names == ["model/model.safetensors"]
    assert before == [path.stat().st_mtime_ns for one in folders for path in one.iterdir()]
    shown = capsys.readouterr().out
    assert "already trained: 2 of 2" in shown
    first, second = (each["nats_per_token"] for each in nats)
    mean, half = (first + second) / 2, 12.706 * abs(first - second) / 2
    assert f" ({mean:.4f} +- {half:.4f} nats/token, 95%)" in shown
    assert shown.count("test perplexity") == 3
    assert f", seed 1 ({folders[1].parent.name})" in shown
    again = "retrain.steps was 25, is 24"
    assert again in refused(retrain.main, capsys, derived, "--set", "retrain.steps=24")


def test_a_folder_is_kept_until_its_result_is_written(
    derived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a second command would remove what the first is writing."""
    order, close = list[str](), Trainer.close
    monkeypatch.setattr("pipeline.retrain.finish_retrain", lambda *_: order.append("result"))
    monkeypatch.setattr(Trainer, "close", lambda self: order.append("let go") or close(self))
    plan = plan_of(derived / "architectures/experiment.yaml", derived)
    retrain_all([(plan, load_architecture(derived / "architecture.json"))], workers=1)
    assert order == ["result", "let go"]


def test_an_architecture_of_another_tokenizer_is_refused(
    experiment_file: Path, derived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.txt").write_text("zzz yyy xxx\n" * 500)
    arguments = [experiment_file, "--run", tmp_path / "other"]
    arguments += ["--architecture", derived / "architecture.json"]
    error = refused(retrain.main, capsys, *arguments)
    assert "made for another text or tokenizer (vocabulary 257" in error
    assert '--layout "a d d i"' in error


def test_the_chosen_model_stays_that_of_the_first_seed(
    retrained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads((retrained / "model/result.json").read_text())["seed"] == 0
    before = files_of(retrained / "model")
    run(retrain, retrained, "--set", "run.seed=1")  # by the experiment that was saved
    assert files_of(retrained / "model") == before
    assert "stays that of seed 0" in capsys.readouterr().out


def test_the_chosen_model_is_carried_whole_or_not_at_all(
    retrained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of an older model must never stand beside those of a newer one."""
    before = files_of(retrained / "model")
    run(derive, retrained, "--method", "interleaved")

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.retrain.shutil.copy", full)
        assert "No space left on device" in refused(retrain.main, capsys, retrained)
    assert files_of(retrained / "model") == before
    assert not list(retrained.glob(".model.*"))
    run(retrain, retrained)
    after = files_of(retrained / "model")
    assert json.loads(after["result.json"])["name"] == "interleaved"
    assert json.loads(after["architecture.json"])["name"] == "interleaved"


@pytest.mark.slow
def test_tied_slots_go_through_all_phases(experiment_file: Path, tmp_path: Path) -> None:
    options = ("--set", "model.tie_blocks=2", "--set", "run.micro_batches=2")
    folder = tmp_path / "tied"
    run(search, experiment_file, "--run", folder, *options)
    run(derive, folder)
    run(retrain, folder)
    run(compare, folder)
    assert json.loads((folder / "architecture.json").read_text())["tie_blocks"] == 2
    assert load_model(folder / "model").tied.module_of(3) == 1
    run(retrain, experiment_file, "--run", tmp_path / "free", "--layout", "interleaved")
    free, tied = (
        json.loads((run_dir / "retrain/interleaved/seed-0/result.json").read_text())["parameters"]
        for run_dir in (tmp_path / "free", folder)
    )
    slots = free - tied
    halves = load_model(folder / "retrain/interleaved/seed-0/model").slots
    assert slots == sum(p.numel() for slot in halves for p in slot.parameters())
    with pytest.raises(ValueError, match=r"tie_blocks 2, but model\.tie_blocks is None"):
        entries_of(plan_of(experiment_file, folder))


def test_options_of_the_model_go_through_all_phases(experiment_file: Path, tmp_path: Path) -> None:
    options = ("norm=rms", "norm_position=post", "token_shift=true", "d_embedding=5", "chunk=2")
    few = ("search.steps=6", "retrain.steps=6", "run.figures=false", "derive.gap=false")
    given = settings(*(f"model.{option}" for option in options), *few)
    folder, wanted = tmp_path / "run", ModelOptions(norm="rms", norm_position="post",
                                                     token_shift=True, d_embedding=5)  # fmt: skip
    run(search, experiment_file, "--run", folder, *given, "--set", "retrain.layer_dropout=0.3")
    run(derive, folder)
    run(retrain, folder)
    assert load_architecture(folder / "architecture.json").options == wanted
    assert load_model(folder / "model").options == wanted
    log = next(folder.glob("retrain/*/seed-0/train.log")).read_text()
    words = "options: norm rms, norm_position post, token_shift, d_embedding 5"
    assert f"{words}, layer_dropout 0.3\n" in log
    assert f"{words}\n" in (folder / "search/seed-0/train.log").read_text()
    with pytest.raises(ValueError, match=r"norm rms, but model\.norm is layer"):
        entries_of(plan_of(experiment_file, folder))


def test_law_8_a_killed_retraining_with_layer_dropout_ends_as_one_never_killed(
    experiment_file: Path, tmp_path: Path
) -> None:
    """Also where a slot was left out in the last step, so that its block's state is lost."""
    texts = ["retrain.layer_dropout=0.5", "model.token_shift=true", "retrain.steps=12"]
    texts += ["model.candidates=[attention, linear_attention]", "run.checkpoint_every=1"]
    options = (*settings(*texts), "--layout", "a linear_attention linear_attention a")
    whole, hurt = tmp_path / "whole", tmp_path / "hurt"
    run(retrain, experiment_file, "--run", whole, *options)
    for step in (3, 7):
        killed_after(step, retrain, experiment_file, "--run", hurt, *options)
    run(retrain, experiment_file, "--run", hurt, *options)
    (folder,) = (whole / "retrain").glob("*/seed-0")
    assert_same(folder, hurt / folder.relative_to(whole))


def test_rezero_is_for_fixed_layouts(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rezero = settings("model.rezero=true", "retrain.steps=4")
    line = refused(search.main, capsys, experiment_file, "--check", *rezero)
    assert line.startswith("model.rezero: not in a search among 3 candidates")
    bare = settings("model.norm_position=post", "model.last_norm=false")
    said = refused(search.main, capsys, experiment_file, "--check", *bare)
    assert said.startswith("model.last_norm: not in a search among 3 candidates")
    swept_file = experiment_file.with_name("swept.yaml")
    space = "sweep: {trials: 2, space: {search.tau.end: {choices: [0.1, 0.3]}}}\n"
    swept_file.write_text(experiment_file.read_text() + space)
    swept = refused(sweep.main, capsys, swept_file, "--check", *rezero)
    assert line.strip() in swept
    with pytest.raises(ValueError, match=r"model\.rezero: not in a search among 3"):
        search_trainer(plan_of(experiment_file, tmp_path / "s", "model.rezero=true"))
    run(retrain, experiment_file, "--run", tmp_path / "r", *rezero, "--layout", "a d i d")
    model = load_model(tmp_path / "r/retrain/layout-adid/seed-0/model")
    assert not any("norm" in name for name in model.state_dict())
    factors = [slot.factors[label].weight for slot in model.slots for label in slot.factors]
    assert len(factors) == 3
    assert all(float(factor.detach()) != 0 for factor in factors)


@pytest.mark.usefixtures("_corpus_with_words")
def test_a_capped_test_text_has_no_word_perplexity(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [experiment_file, "--run", tmp_path / "run", "--layout", "a d d i"]
    run(retrain, *arguments, "--set", "data.test_tokens=500")
    path = tmp_path / "run/retrain/layout-addi/seed-0/result.json"
    result = json.loads(path.read_text())
    assert "words" in result["valid"]
    assert "words" not in result["test"]
    assert "word_perplexity" not in result["test"]
    assert "per word" not in capsys.readouterr().out


def test_law_8_what_blocks_say_of_themselves_is_logged_and_goes_on_as_if_never_killed(
    experiment_file: Path, tmp_path: Path
) -> None:
    sizes = settings(
        "model.candidates=[attention, mixture_of_experts, "
        "{kind: adaptive_span, span: 9, ramp: 2, span_loss: 0.1}]",
        "retrain.steps=6", "run.validate_every=2", "run.checkpoint_every=3",
    )  # fmt: skip
    once = [experiment_file, "--run", tmp_path / "once", "--layout", "s e s a", *sizes]
    again = [*once[:2], tmp_path / "again", *once[3:]]
    run(retrain, *once)
    killed_after(4, retrain, *again)
    run(retrain, *again)
    folder = Path("retrain/layout-sesa/seed-0")
    assert_same(tmp_path / "once" / folder, tmp_path / "again" / folder)
    said = [row for row in rows(tmp_path / "once" / folder / "metrics.jsonl") if "blocks" in row]
    assert [row["step"] for row in said] == [2, 4, 6]
    for row in said:
        places = [(block["block"], block["label"]) for block in row["blocks"]]
        assert places == [(0, "adaptive_span"), (1, "mixture_of_experts"), (2, "adaptive_span")]
    spans = [row["blocks"][0]["numbers"]["span_keys"] for row in said]
    assert 9 > spans[0][0] > spans[2][0] > 0
    result = read_object(tmp_path / "once" / folder / "result.json")
    assert result["blocks"] == next(r["blocks"] for r in said if r["step"] == result["best_step"])
