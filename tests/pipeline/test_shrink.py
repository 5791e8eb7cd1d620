"""Shrinking a trained model: its sub-networks' scores, the derivation, and what is refused."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import compare
import derive
import retrain
from model import Evidence, LanguageModel, build_model, load_architecture, load_model, parse_layout
from model.saving import load_given, save_model
from nas import dropping
from nas.baselines import DROPS, NoBaseline
from nas.derivation.base import Derived
from nas.derivation.sub_networks import SubNetworks
from pipeline.architectures import architecture_of
from pipeline.baselines import entries_of
from pipeline.cli import check_run
from pipeline.compare import reference_of
from pipeline.derive import Derivation, choose
from pipeline.plan import RunPlan
from pipeline.sub_networks import parent_of, sub_networks
from report.page import write_report
from tests.pipeline.conftest import PlanWith, plan_of
from tests.runs import Capture, refused, run, settings, write_json

SHRINK = ("--method", "shrink")
FEW = settings("retrain.steps=12", "run.validate_every=6", "retrain.optimiser.warmup_steps=1",
               "derive.budget.flops=0.8x", "derive.shrink.tokens=256")  # fmt: skip


@pytest.fixture
def parent(undisturbed: Path, experiment_file: Path, tmp_path: Path) -> Path:
    """The folder of a model that was trained on the text of `experiment_file`."""
    trained = undisturbed / "retrain/layout-adad/seed-0"
    shutil.copytree(trained / "model", tmp_path / "p")
    shutil.copy(trained / "result.json", tmp_path / "p")
    return tmp_path / "p"


def scores_of(plan: RunPlan) -> SubNetworks:
    """The scores of what stays of a plan's parent."""
    _, parent = parent_of(plan)
    folder = plan.experiment.retrain.models()["start"]
    like = load_architecture(folder / "architecture.json")
    return sub_networks(plan, load_given({"start": folder}, like, [])["start"], parent.options)


@pytest.mark.parametrize("more", [[], ["model.token_shift=true"], ["model.positions=rope"]])
def test_a_score_is_that_of_the_network_built_alone(
    more: list[str], parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    """By memories of its own and all words' probabilities, in float64 to 1e-10."""
    texts = [f"retrain.start={parent}", "derive.shrink.tokens=256", *more]
    if more:
        run(retrain, experiment_file, "--run", tmp_path / "o", "--layout", "a d a d",
            *settings(*more, "retrain.steps=8", "retrain.optimiser.warmup_steps=1"))  # fmt: skip
        texts[0] = f"retrain.start={tmp_path / 'o/retrain/layout-adad/seed-0/model'}"
    plan = plan_of(experiment_file, tmp_path / "run", *texts)
    scores = scores_of(plan)
    assert scores.options == [(0, 2), (1, 2)] * 2
    scores.net.double()
    choices = [(0, 1, 0, 1), (0, 1, 2, 1), (2, 1, 0, 2), (0, 2, 2, 2), (2, 2, 2, 2)]
    found = scores.distances(choices)
    model = load_model(plan.experiment.retrain.models()["start"]).double()
    whole = hidden(model, scores, (0, 1, 0, 1))
    for choice in choices:
        kl, nats = list[torch.Tensor](), list[torch.Tensor]()
        for taught, h, batch in zip(
            whole, hidden(model, scores, choice), scores.batches, strict=True
        ):
            wanted, log_p = model.log_prob(taught), model.log_prob(h)
            kl.append((wanted.exp() * (wanted - log_p)).sum(-1))
            nats.append(-log_p.gather(-1, batch.target_BT[..., None])[..., 0])
        for score, values in ((found[choice].kl, kl), (found[choice].nats, nats)):
            scored = torch.stack(values[1:])
            assert score.nats_per_token == pytest.approx(scored.mean().item(), abs=1e-10)
            assert score.tokens == scored.numel()
    assert found[choices[0]].kl_nats == pytest.approx(0, abs=1e-14)


def hidden(
    model: LanguageModel, scores: SubNetworks, choice: tuple[int, ...]
) -> list[torch.Tensor]:
    """Hidden states of the model's own forward pass with inputs in its memories."""
    mix = [[] if k == 2 else [(0, None)] for k in choice]
    state, found = model.initial_state(len(scores.batches[0].input_BT)), list[torch.Tensor]()
    with torch.no_grad():
        for batch in scores.batches:
            h_BTD, state, _ = model(batch.input_BT, state, mix)
            found.append(h_BTD)
    return found


def test_cosines_are_of_what_comes_into_a_block_and_what_goes_out(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    texts = (f"retrain.start={parent}", "derive.shrink.tokens=256")
    scores = scores_of(plan_of(experiment_file, tmp_path / "run", *texts))
    scores.net.double()
    model, seen, streams = load_model(parent).double(), list[torch.Tensor](), []
    model.norm.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    for count in range(5):
        seen.clear()
        hidden(model, scores, tuple(0 if place < count else 2 for place in range(4)))
        streams.append(torch.stack(seen[1:]))
    wanted = [torch.cosine_similarity(*pair, dim=-1).mean().item() for pair in pairwise(streams)]
    assert scores.cosines() == pytest.approx(wanted, abs=1e-12)


def test_every_block_of_the_same_weights_may_stand_in_a_place_and_nothing_in_an_idle_one(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    candidates = (
        "model.candidates=[attention, dense, identity, {kind: attention, label: near, memory: 4},"
        " {kind: dense, label: wide, d_ffn: 48}, {kind: attention, label: mid, memory: 6},"
        " {kind: dense, label: smooth, activation: gelu}]"
    )
    texts = (candidates, f"retrain.start={parent}", "derive.shrink.tokens=256")
    plan = plan_of(experiment_file, tmp_path / "run", *texts)
    architecture = load_architecture(parent / "architecture.json")
    # What costs more comes first, whatever the order of the candidates.
    assert parent_of(plan)[1].options == [(0, 5, 3, 2), (1, 2)] * 2
    first, *rest = architecture.blocks
    idle = architecture.model_copy(update={"blocks": (first, plan.candidates[2], *rest[1:])})
    save_model(parent, build_model(idle), idle)
    assert parent_of(plan)[1].options == [(0, 5, 3, 2), (2,), (0, 5, 3, 2), (1, 2)]


def test_scores_are_of_text_that_training_would_have_read_next(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    texts = (f"retrain.start={parent}", "derive.shrink.tokens=256")
    plan = plan_of(experiment_file, tmp_path / "run", *texts)
    scores = scores_of(plan)
    steps, batches = plan.stages.steps, plan.training_batches()
    assert len(scores.batches) == 1 + round(256 / (batches.streams * batches.width)) > 2
    assert torch.equal(scores.batches[0].input_BT, batches.batch(steps).input_BT)
    per_epoch = batches.per_epoch
    for steps, first in ((3 * per_epoch + 2, 2), (per_epoch - 1, 0)):
        (parent / "result.json").write_text(json.dumps({"steps": steps}))
        scores = scores_of(plan)
        assert torch.equal(scores.batches[0].input_BT, batches.batch(first).input_BT)
    every = f"derive.shrink.tokens={(per_epoch - 1) * batches.streams * batches.width}"
    scores = scores_of(plan_of(experiment_file, tmp_path / "run", *texts, every))
    assert len(scores.batches) == per_epoch
    assert [batch.first for batch in scores.batches].count(True) == 1


def test_scores_are_kept_for_one_parent_text_program_and_what_labels_stand_for(
    parent: Path, experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(tokens: int = 256, memory: int = 4) -> str:
        near = f"{{kind: attention, label: near, memory: {memory}}}"
        texts = (f"retrain.start={parent}", f"derive.shrink.tokens={tokens}",
                 f"model.candidates=[attention, dense, identity, {near}]")  # fmt: skip
        return scores_of(plan_of(experiment_file, tmp_path / "run", *texts)).kept.key

    keys = [key(512), key(memory=5), key()]
    model = load_model(parent)
    with torch.no_grad():
        model.norm.weight.mul_(1.5)
    save_model(parent, model, load_architecture(parent / "architecture.json"))
    keys.append(key())
    for name in ("machine", "source_digest"):
        monkeypatch.setattr(f"pipeline.sub_networks.{name}", lambda given: "another")
        keys.append(key())
    assert len(set(keys)) == 6
    assert key() == keys[-1]


def test_what_begins_alike_is_computed_once_and_nothing_is_scored_twice(
    parent: Path, experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = (f"retrain.start={parent}", "derive.shrink.tokens=256")
    plan = plan_of(experiment_file, tmp_path / "run", *texts)
    scores = scores_of(plan)
    assert scores._taught
    passed = list[tuple[int, int]]()
    through = SubNetworks._through

    def counted(self: SubNetworks, place: int, k: int, x_NBTD: Any) -> Any:
        passed.append((place, k))
        return through(self, place, k, x_NBTD)

    monkeypatch.setattr(SubNetworks, "_through", counted)
    first = scores.distances([(0, 1, 2, 2), (0, 1, 0, 1), (0, 1, 0, 2)])
    assert passed == [(0, 0), (1, 1), (2, 0), (3, 1), (3, 2), (2, 2), (3, 2)]
    passed.clear()
    found = scores_of(plan).distances([(0, 1, 2, 2)])[0, 1, 2, 2]
    assert not passed
    assert found.kl_nats == first[0, 1, 2, 2].kl_nats
    # The same command may go on in a folder that has nothing else yet.
    assert [path.name for path in plan.run_dir.iterdir()] == ["shrink.jsonl"]
    assert check_run(plan.run_dir) == plan.run_dir


def test_a_model_shrinks_and_its_child_is_retrained_from_it(
    parent: Path, experiment_file: Path, tmp_path: Path, jobs: list[str]
) -> None:
    folder = tmp_path / "small"
    given = [*FEW, *settings(f"retrain.start={parent}", f"retrain.teacher={parent}")]
    arguments = [experiment_file, "--run", folder, *given]
    run(derive, *arguments, *SHRINK)
    chosen = load_architecture(folder / "architecture.json")
    assert chosen.name == "shrink-flops0.8x"
    assert chosen.evidence is not None
    assert chosen.evidence.method.startswith("shrink: all 3 maximal subsets by KL on 256")
    assert chosen.evidence.budget is not None
    assert chosen.evidence.budget.startswith("flops 0.8x of a d a d (")
    subsets = (folder / "architectures/shrink-flops0.8x-subsets.csv").read_text().splitlines()
    blocks = (folder / "architectures/shrink-flops0.8x-blocks.csv").read_text().splitlines()
    assert blocks[0] == "block,label,kl_nats,nats_more,flops"
    assert len(blocks) == 5
    assert subsets[1].startswith(chosen.letters())
    assert "3 subsets within the budget were scored" in write_report(folder).read_text()
    assert jobs == []
    run(retrain, folder, *given)
    result = json.loads((folder / "model/result.json").read_text())
    assert result["layout"] == chosen.letters()
    assert result["start"]["digest"] == result["teacher"]["digest"]
    model = load_model(folder / "model")
    assert sum(block.kind == "identity" for block in chosen.blocks) == 1
    assert next(model.parameters()).isfinite().all()


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "retrain.start: shrink needs the folder of the model that shrinks"),
        (["retrain.start={parent}", "derive.fill=d_ffn"],
         "derive.fill: shrink keeps the widths that the model has; leave it out"),
        (["retrain.start={parent}", "model.candidates=[attention, dense]"],
         "model.candidates: to drop blocks, add identity"),
        (["retrain.start={parent}", "model.n_blocks=6"],
         "retrain.start: has 4 blocks, model.n_blocks 6; give as many"),
        (["retrain.start={parent}", "model.n_heads=4"], "retrain.start: block 0 ("),
        (["retrain.start={parent}", "derive.shrink.tokens=1000000"],
         "derive.shrink.tokens: 1000000 and a segment before them are more than"),
        (["retrain.start={parent}", "derive.budget.flops=0.01x"],
         "derive.budget.flops: no layout is within"),
        (["retrain.start={parent}", "derive.budget.flops=1.5x"],
         "derive.least_context 1: the parent itself is within it; give less"),
        (["retrain.start={parent}", "model.token_shift=true"], "retrain.start: options: "),
    ],
)  # fmt: skip
def test_a_parent_that_cannot_shrink_is_refused_and_nothing_is_written(
    texts: list[str], words: str, parent: Path, experiment_file: Path, tmp_path: Path,
    capsys: Capture,
) -> None:  # fmt: skip
    given = [text.format(parent=parent) for text in texts]
    said = refused(derive, capsys, experiment_file, "--run", tmp_path / "small", *SHRINK, *FEW,
                   *settings(*given))  # fmt: skip
    assert words in said
    assert not (tmp_path / "small/architecture.json").exists()
    assert not (tmp_path / "small/trainings").exists()


def test_the_chosen_subset_stands_first_though_a_nearer_one_exceeded_the_budget(
    plan_with: PlanWith,
) -> None:
    plan, letters = plan_with(), ["a d a i", "i d a d", "a i a d"]
    layout = parse_layout(letters[1], plan.candidates)
    rows = [{"layout": text} for text in letters]
    found = Derived(layout, Evidence(method="shrink"), subsets=rows).marked()
    choose(Derivation(architecture_of(plan, found, "x"), found), plan.experiment, plan.run_dir)
    table = (plan.run_dir / "architectures/x-subsets.csv").read_text().splitlines()
    assert table == ["layout", letters[1], letters[0], letters[2]]


@pytest.mark.parametrize("baseline", ["parent", "drop_last"])
def test_without_a_parent_there_are_no_baselines_of_one(
    baseline: str, derived: Path, capsys: Capture
) -> None:
    said = refused(compare, capsys, derived, *settings(f"compare.baselines=[{baseline}]"))
    assert "retrain.start: shrink, parent and drop_* need it; give a model folder" in said
    assert not (derived / "retrain").exists()


def test_a_rule_that_finds_no_subset_is_a_remark(
    parent: Path, experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(asked: object) -> None:
        raise NoBaseline("no subset")

    monkeypatch.setattr(dropping, "drop_last", none)
    run(derive, experiment_file, "--run", tmp_path / "small",
        *settings("derive.method=layout", "derive.layout=a d a i"))  # fmt: skip
    texts = (f"retrain.start={parent}", "compare.baselines=[drop_last]", "compare.seeds=[0]",
             "derive.shrink.tokens=256")  # fmt: skip
    (chosen,) = entries_of(plan_of(experiment_file, tmp_path / "small", *texts))
    assert chosen.remarks == ["drop_last: no subset"]


def test_models_that_are_tied_foreign_or_the_runs_own_are_refused(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(parent, tmp_path / "run/model")
    with pytest.raises(ValueError, match=r"retrain.start: .*/run/model: is where this training wr"):
        parent_of(plan_of(experiment_file, tmp_path / "run", f"retrain.start={own}"))
    saved = load_architecture(parent / "architecture.json")
    foreign = saved.tokenizer.model_copy(update={"digest": "another"})
    other = saved.model_copy(update={"tokenizer": foreign})
    save_model(tmp_path / "other", build_model(other), other)
    shutil.copy(parent / "tokenizer.json", tmp_path / "other")
    texts = (f"retrain.start={parent}", f"retrain.teacher={tmp_path / 'other'}")
    with pytest.raises(ValueError, match=r"retrain.teacher: .*/other: was trained with another t"):
        parent_of(plan_of(experiment_file, tmp_path / "run", *texts))
    tied = saved.model_copy(update={"tie_blocks": 2})
    save_model(parent, build_model(tied), tied)
    plan = plan_of(experiment_file, tmp_path / "run", f"retrain.start={parent}")
    with pytest.raises(ValueError, match=r"blocks share weights \(tie_blocks 2\), so none can be"):
        parent_of(plan)


def test_what_rules_leave_of_a_parent_are_trainings_of_their_own(
    parent: Path, experiment_file: Path, tmp_path: Path
) -> None:
    """Of the chosen one's cost, whatever network they are; the parent itself is not trained."""
    folder = tmp_path / "run"
    texts = [f"retrain.start={parent}", "derive.method=layout", "compare.equal=flops",
             "derive.shrink.tokens=256"]  # fmt: skip
    run(derive, experiment_file, "--run", folder, *settings(*texts, "derive.layout=a d i i"))
    rules = "parent, interleaved, drop_last, drop_first, layout, drop_random"
    texts += [f"compare.baselines=[{rules}]", "derive.layout=i i a d", "compare.random_layouts=3"]
    plan = plan_of(experiment_file, folder, *texts, "compare.seeds=[0]")
    entries = entries_of(plan)
    found = {entry.architecture.letters(): entry for entry in entries if entry.role != "parent"}
    assert found["a d a d"].kinds == ["interleaved"]
    assert entries[reference_of(entries)].kinds == ["parent"]
    assert found["a d i i"].role == "chosen"
    assert found["a d i i"].kinds[:1] == ["drop_last"]
    assert found["i i a d"].kinds[:2] == ["drop_first", "layout"]
    assert found["i i a d"].share == 1.0
    assert sum("drop_random" in entry.kinds for entry in entries) == 3
    assert not any("drop_random: " in remark for remark in entries[0].remarks)
    many = plan_of(
        experiment_file, folder, *texts, "compare.seeds=[0]", "compare.random_layouts=99"
    )
    (remark,) = (one for one in entries_of(many)[0].remarks if "drop_random: " in one)
    assert "of 99; there are no other networks" in remark
    names = [entry.architecture.name for entry in found.values()]
    assert sorted(path.name for path in (folder / "retrain").iterdir()) == sorted(names)
    name = found["i i a d"].architecture.name
    write_json(folder / "retrain" / name / "seed-0/identity.json", {"retrain": {"steps": 3}})
    with pytest.raises(ValueError, match=f"{name}/seed-0: holds another experiment"):
        entries_of(plan)


def test_a_child_is_compared_with_its_parent_and_other_subsets(
    parent: Path, experiment_file: Path, tmp_path: Path, jobs: list[str], capsys: Capture
) -> None:
    """Subsets of one network are other trainings, as their blocks begin otherwise."""
    folder, drops = tmp_path / "small", ", ".join(DROPS)
    given = [*FEW, *settings(
        f"retrain.start={parent}", f"retrain.teacher={parent}",
        f"compare.baselines=[parent, {drops}]", "compare.seeds=[0, 1]", "costs.take_unsure=true",
        "compare.random_layouts=2", "derive.budget.flops=0.6x", "data.random_offset=true",
    )]  # fmt: skip
    run(derive, experiment_file, "--run", folder, *given, *SHRINK)
    run(compare, folder, *given)
    said = capsys.readouterr().out
    table = json.loads((folder / "comparison.json").read_text())
    rows = {row["name"]: row for row in table["rows"]}
    chosen = table["rows"][0]["name"]
    assert chosen == "shrink-flops0.6x"
    assert table["reference"] == "parent"
    assert [rows[name]["n"] for name in ("parent", chosen)] == [1, 2]
    assert table["saving"].endswith(", after 48% more training, which the parent did not get")
    assert len({row["layout"] for row in table["rows"]}) == len(rows) >= 4
    for name, row in rows.items():
        assert name == "parent" or row["flops_per_token"] <= rows[chosen]["flops_per_token"] * 1.001
    plan = plan_of(experiment_file, tmp_path / "other")
    wanted = plan.evaluate(load_model(parent), plan.streams("test")).nats_per_token
    assert rows["parent"]["nats_per_token"] == pytest.approx(wanted)
    assert not (folder / "retrain/parent").exists()
    assert (folder / "architectures/parent.json").exists(), "its stack is drawn by its labels"
    assert all(result["start"] for name in rows if name != "parent"
               for result in table["results"][name])  # fmt: skip
    assert "x of parent's FLOPs" in said or "x of parent's latency" in said
    assert "every layout started from layout-adad" in said
    assert "parent: one model as it is, without the steps of recovery" in said
    assert "nats_per_token" not in table["intervals"]["parent"]
    for name in set(rows) - {"parent"}:
        one, other = (result["test"]["nats_per_token"] for result in table["results"][name])
        assert one != other, "seeds are trainings of their own"
    write_report(folder)
