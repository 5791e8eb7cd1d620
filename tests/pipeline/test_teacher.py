"""Retraining with a teacher, and from the weights of a trained model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import compare
import derive
import retrain
from model import load_architecture, load_model
from model.architecture import model_digest
from pipeline.experiment import load_experiment
from pipeline.retrain import retrain_identity, retrain_trainer
from tests.pipeline.conftest import plan_of
from tests.runs import LAYOUT, assert_same, killed_after, refused, rows, run, settings

FEW = settings("retrain.steps=12", "run.validate_every=6", "run.checkpoint_every=1")
OTHER = ["--layout", "a d d i"]
FOLDER = Path("retrain/layout-addi/seed-0")


@pytest.fixture
def parent(undisturbed: Path, experiment_file: Path, tmp_path: Path) -> Path:
    """The folder of a model that was trained on the text of `experiment_file`."""
    return Path(shutil.copytree(undisturbed / "retrain/layout-adad/seed-0/model", tmp_path / "p"))


def row_of(result: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def test_law_8_a_killed_training_with_a_teacher_ends_as_one_never_killed(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    """An epoch has 94 steps: memories are carried, and begin anew once."""
    taught = settings(f"retrain.teacher={parent}", "run.micro_batches=2", "retrain.steps=110",
                      "run.checkpoint_every=28")  # fmt: skip
    whole, hurt = ([experiment_file, "--run", tmp_path / name, *OTHER, *taught] for name in "wh")
    run(retrain, *whole)
    for step in (37, 101):
        killed_after(step, retrain, *hurt)
    run(retrain, *hurt)
    assert_same(tmp_path / "w" / FOLDER, tmp_path / "h" / FOLDER)
    trained = [row for row in rows(tmp_path / "w" / FOLDER / "metrics.jsonl") if "lr" in row]
    assert all(0 < row["kl_nats"] < row["loss_nats"] for row in trained)
    assert trained[-1]["kl_nats"] < 0.9 * trained[0]["kl_nats"]
    result = row_of(tmp_path / "w" / FOLDER / "result.json")
    teacher = result["teacher"]
    assert teacher.pop("flops_per_token") > result["flops_per_token"]
    assert teacher == {
        "name": "layout-adad",
        "digest": model_digest(parent),
        "weight": 0.9,
        "temperature": 1.0,
        "tokens": result["tokens"],
    }
    log = (tmp_path / "w" / FOLDER / "train.log").read_text()
    assert f"learned from layout-adad (weights {teacher['digest'][:12]}): loss 0.9 KL + 0.1" in log


def test_a_teacher_of_weight_0_is_none_and_none_changes_what_dropout_drops(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    teacher = f"retrain.teacher={parent}"
    given = {"n": [], "0": [teacher, "retrain.distillation={weight: 0}"], "t": [teacher]}
    for name, texts in given.items():
        arguments = [experiment_file, "--run", tmp_path / name, *OTHER, *FEW, *settings(*texts)]
        killed_after(8, retrain, *arguments)
    none, zero, taught = (tmp_path / name / FOLDER for name in given)
    assert_same(none, zero)
    assert (none / "identity.json").read_bytes() == (zero / "identity.json").read_bytes()
    states = [load_file(folder / "last.safetensors") for folder in (none, taught)]
    assert torch.equal(states[0]["random.cpu"], states[1]["random.cpu"])
    assert not torch.equal(states[0]["model.norm.weight"], states[1]["model.norm.weight"])


def test_a_model_counts_by_its_weights_and_not_by_where_it_is(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(parent, tmp_path / "moved")
    found = [
        load_experiment(experiment_file, [f"retrain.{key}={folder}"]).retrain.identity()
        for key in ("teacher", "start")
        for folder in (parent, moved)
    ]
    assert found[0] == found[1] != found[2] == found[3]
    assert found[0]["teacher"] == found[2]["start"] == model_digest(parent)
    bare = load_experiment(experiment_file).retrain.identity()
    assert {"teacher", "distillation", "start"}.isdisjoint(bare)


def test_a_training_starts_with_the_weights_of_its_model(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    plan = plan_of(experiment_file, tmp_path / "run", f"retrain.start={parent}")
    trainer = retrain_trainer(plan, load_architecture(parent / "architecture.json"))
    wanted = plan.evaluate(load_model(parent), plan.streams("valid"))
    assert plan.evaluate(trainer.state.model, plan.streams("valid")) == wanted
    assert not trainer.state.optimisers["weights"].state
    run(retrain, experiment_file, "--run", tmp_path / "run", *LAYOUT, *FEW,
        *settings(f"retrain.start={parent}"))  # fmt: skip
    result = row_of(tmp_path / "run/retrain/layout-adad/seed-0/result.json")
    assert result["start"] == {"name": "layout-adad", "digest": model_digest(parent)}
    assert result["valid"]["nats_per_token"] < wanted.nats_per_token


@pytest.mark.parametrize("more", ["model.tie_blocks=2", "model.rezero=true"])
def test_weights_that_blocks_share_and_factors_of_blocks_are_taken_too(
    more: str, parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    run(retrain, experiment_file, "--run", tmp_path / "o", *LAYOUT,
        *settings(more, "retrain.steps=4", "retrain.optimiser.warmup_steps=1"))  # fmt: skip
    folder = tmp_path / "o/retrain/layout-adad/seed-0/model"
    plan = plan_of(experiment_file, tmp_path / "run", more, f"retrain.start={folder}")
    architecture = load_architecture(folder / "architecture.json")
    wanted = load_model(folder).state_dict()
    # Without its first block the third one still has what both share.
    idle = (plan.candidates[2], *architecture.blocks[1:])
    for blocks in (architecture.blocks, idle):
        child = architecture.model_copy(update={"blocks": blocks})
        found = retrain_trainer(plan, child).state.model.state_dict()
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())
    other = plan_of(experiment_file, tmp_path / "run", more, f"retrain.start={parent}")
    words = "modules: 4 in the model that is given, 2 here" if "tie" in more else "options: "
    with pytest.raises(ValueError, match=f"retrain.start: .*{words}"):
        retrain_trainer(other, architecture)


def test_blocks_begin_as_those_in_their_places(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    plan = plan_of(experiment_file, tmp_path / "run", f"retrain.start={parent}")
    model, whole = load_model(parent), load_architecture(parent / "architecture.json")
    ids_BT = torch.arange(14).view(2, 7)
    wanted_BTD, _, _ = model(
        ids_BT, model.initial_state(2), [[(0, None)], [(0, None)], [], [(0, None)]]
    )
    identity = plan.candidates[2]
    assert identity.kind == "identity"
    named = (one.model_copy(update={"label": f"b{at}"}) for at, one in enumerate(whole.blocks))
    first, second, _, last = named
    part = whole.model_copy(update={"blocks": (first, second, identity, last), "name": "part"})
    found = retrain_trainer(plan, part).state.model.eval()
    torch.testing.assert_close(found(ids_BT, found.initial_state(2))[0], wanted_BTD)
    # Another place is another training.
    moved = whole.model_copy(update={"blocks": (first, second, last, identity)})
    assert retrain_identity(plan, part) != retrain_identity(plan, moved)
    for wrong, words in (
        (whole.blocks[:3], "number of blocks: 4 in the model"),
        ((first.model_copy(update={"n_heads": 4}), *whole.blocks[1:]),
         r"blocks\[0\]\.n_heads: 2 in .*, 4 here"),
        ((first, second.model_copy(update={"activation": "gelu"}), *whole.blocks[2:]),
         r"blocks\[1\]\.activation: relu in .*, gelu here"),
        ((second, first, *whole.blocks[2:]), r"blocks\[0\]: attention in .*, dense here"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"retrain.start: .*{words}"):
            retrain_trainer(plan, whole.model_copy(update={"blocks": wrong}))


@pytest.mark.parametrize("script", [retrain, compare])
def test_seeds_that_would_be_one_training_are_refused(
    script: Any, parent: Path, experiment_file: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """They begin with the same weights, and read the same batches."""
    started, out = settings(f"retrain.start={parent}", "model.dropout=0"), tmp_path / "run"
    run(derive, experiment_file, "--run", out, *started, "--method", "layout",
        *settings("derive.layout=a d a d"))  # fmt: skip
    before = sorted(out.rglob("*"))
    given = [experiment_file, "--run", out, *FEW, *started, "--seeds", "1,0"]
    said = refused(script, capsys, *given)
    assert said.startswith("retrain.start: seeds 0, 1 begin with one model and read the same")
    assert sorted(out.rglob("*")) == before
    for text in ("model.dropout=0.1", "data.random_offset=true", "retrain.layer_dropout=0.1"):
        plan = plan_of(experiment_file, out, f"retrain.start={parent}", "model.dropout=0", text)
        plan.experiment.check_seeds([0, 1])
    plan_of(experiment_file, out, "model.dropout=0").experiment.check_seeds([0, 1])


def test_every_baseline_has_the_teacher_and_the_comparison_says_which(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    texts = [f"retrain.teacher={parent}", "retrain.distillation={weight: 0.5, temperature: 2}"]
    arguments = [experiment_file, "--run", tmp_path / "run", *FEW, *settings(*texts)]
    arguments += settings("compare.baselines=[interleaved]")
    run(derive, *arguments, "--method", "layout", "--set", "derive.layout=a d d i")
    run(compare, *arguments)
    results = [*(tmp_path / "run").glob("retrain/*/seed-0/result.json")]
    assert len(results) == 2
    assert len({json.dumps(row_of(result)["teacher"]) for result in results}) == 1
    (said,) = (
        line for line in row_of(tmp_path / "run/comparison.json")["remarks"] if "learned" in line
    )
    assert said.startswith("every layout learned from layout-adad (weights ")
    assert "loss 0.5 KL at temperature 2 + 0.5 nats; its pass takes " in said


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["retrain.teacher=nowhere"], "retrain.teacher: {base}/nowhere: not a model folder (arch"),
        (["retrain.start=nowhere"], "retrain.start: {base}/nowhere: not a model folder (arch"),
        (["retrain.distillation={weight: 0.5}"], "distillation: has no effect without a teacher"),
        (["retrain.teacher=p", "retrain.distillation={weight: 1.5}"], "less than or equal to 1"),
        (["retrain.teacher=p", "retrain.distillation={temperature: 0}"], "must be greater than 0"),
    ],
)  # fmt: skip
def test_what_is_asked_wrongly_is_refused_by_check(
    texts: list[str], words: str, parent: Path, experiment_file: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    said = refused(retrain, capsys, experiment_file, "--check", *settings(*texts))
    assert words.format(base=tmp_path) in said


@pytest.mark.parametrize("key", ["teacher", "start"])
@pytest.mark.parametrize("fault", ["damaged", "tokenizer", "own"])
def test_a_model_that_cannot_serve_is_refused_and_nothing_is_written(
    key: str, fault: str, parent: Path, experiment_file: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder, out = parent, tmp_path / "run"
    if fault == "damaged":
        (parent / "model.safetensors").write_bytes(b"torn")
    elif fault == "tokenizer":
        experiment_file.with_name("train.txt").write_text("zzz yyy xxx\n" * 500)
    else:
        folder = out / "retrain/layout-adad/seed-0/model"
        shutil.copytree(parent, folder)
        folder.with_name("experiment.yaml").write_text("")
    before = sorted(out.rglob("*"))
    said = refused(retrain, capsys, experiment_file, "--run", out, *LAYOUT,
                   *settings(f"retrain.{key}={folder}"))  # fmt: skip
    words = {
        "damaged": "damaged, or not a safetensors file",
        "tokenizer": "was trained with another tokenizer (vocabulary 257, ",
        "own": "is where this training writes its model; give another model",
    }
    assert said.startswith(f"retrain.{key}: {folder}")
    assert words[fault] in said
    assert sorted(out.rglob("*")) == before
