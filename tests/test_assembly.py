"""How the phases are put together: what a fault in the wiring would make unfair or lose."""

import csv
import errno
import json
import math
import shlex
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import compare
import derive
import retrain
import search
from data import CORPORA, Corpus, count_words
from data.corpora import CorpusKind
from data.corpora.local import load_files
from model import Dropout, load_architecture, load_model
from nas.config import DeriveConfig
from nas.derivation.rules import TOLERANCE
from pipeline.build import architecture_hash
from pipeline.compare import contestants
from pipeline.context import Workbench, set_up
from pipeline.derive import derive as derive_by
from pipeline.experiment import load_experiment
from pipeline.retrain import finish_retrain, retrain_phase
from pipeline.search import search_phase
from tests.refusal import refused
from tests.test_pipeline import ROOT, run

ALL_DENSE = "derive.layout=d d d d"


def bench_of(file: Path, folder: Path, *settings: str) -> Workbench:
    return set_up(load_experiment(file, settings), folder)


@pytest.mark.parametrize(
    ("settings", "weights", "alpha"),
    [
        ((), "spos", "estimator soft, "),
        (("search.estimator=soft",), "soft", ""),
        (("search.alpha.estimator=two_path", "search.alpha.every=2"), "spos",
         "estimator two_path, moves every 2 steps, "),
    ],
)  # fmt: skip
def test_a_search_says_by_what_weights_and_alpha_learn(
    experiment_file: Path, tmp_path: Path, settings: tuple[str, ...], weights: str, alpha: str
) -> None:
    said = search_phase(bench_of(experiment_file, tmp_path, *settings)).summary
    assert f"\nestimator {weights}, draws held " in said
    assert f"\nalpha: prequential data, {alpha}first moves at step 15, " in said


def test_a_search_knows_what_its_steps_cost(experiment_file: Path, tmp_path: Path) -> None:
    work = search_phase(bench_of(experiment_file, tmp_path)).work
    assert work is not None
    assert len(work) == 30
    assert len(set(work[:15])) == len(set(work[15:])) == 1
    assert work[15] > 1.5 * work[0], "alpha hears of all candidates"


def test_a_search_records_the_gradients_of_each_kind(experiment_file: Path, tmp_path: Path) -> None:
    phase = search_phase(bench_of(experiment_file, tmp_path))
    phase.state.step = 1
    blocks = [slot.blocks["attention"] for slot in phase.state.model.slots]
    for block, value in zip(blocks, (3.0, 4.0), strict=False):  # slots 2 and 3 were not drawn
        next(block.parameters()).grad = torch.full_like(next(block.parameters()), value)
    row = phase.columns(phase.state)
    numbers = next(blocks[0].parameters()).numel()
    assert row["grad_norm_attention"] == pytest.approx(5.0 * math.sqrt(numbers), rel=1e-5)
    assert row["grad_norm_dense"] == 0
    assert "grad_norm_identity" not in row
    assert row["nothing_share"] == pytest.approx(1 / 3)


def test_split_gives_weights_and_alpha_texts_that_do_not_overlap(
    experiment_file: Path, tmp_path: Path
) -> None:
    bench = bench_of(
        experiment_file, tmp_path, "search.alpha.data=split", "search.alpha.share=0.25"
    )
    tokens = torch.from_numpy(bench.prepared.tokens["train"].astype("int64"))
    phase = search_phase(bench)
    step: Any = phase.step

    def text(batches: Any) -> torch.Tensor:
        parts = [batches.batch(i).input_BT for i in range(batches.per_epoch)]
        return torch.cat(parts, dim=1).flatten()

    weights, alpha = text(phase.batches), text(step.alpha_batches)
    cut = round(len(tokens) * 0.75)
    assert torch.equal(weights, tokens[: len(weights)])
    assert torch.equal(alpha, tokens[cut : cut + len(alpha)])
    assert len(weights) < cut
    assert len(alpha) / (len(weights) + len(alpha)) == pytest.approx(0.25, abs=0.005)


def test_soft_and_one_hot_validation_are_those_nets(experiment_file: Path, tmp_path: Path) -> None:
    phase = search_phase(bench_of(experiment_file, tmp_path))
    state = phase.state
    with torch.no_grad():
        state.parameters["alpha"].copy_(torch.tensor([[1.0, 0.5, 0.0]] * 4))
    soft, one_hot = phase.nets["soft"](state).nats, phase.nets["onehot"](state).nats
    assert soft != one_hot
    with torch.no_grad():
        state.parameters["alpha"].mul_(100)
    assert phase.nets["soft"](state).nats == pytest.approx(one_hot, rel=1e-6)
    assert phase.nets["onehot"](state).nats == one_hot


def test_retraining_has_the_experiments_dropout(experiment_file: Path, tmp_path: Path) -> None:
    bench = bench_of(experiment_file, tmp_path, "model.dropout=0.37", "model.dropout_dense=0.2")
    run(derive, experiment_file, "--run", tmp_path / "d", "--method", "interleaved")
    phase = retrain_phase(bench, load_architecture(tmp_path / "d/architecture.json"))
    assert phase.state.model.dropout == Dropout(residual=0.37, embedding=0.37, dense=0.2)
    assert {slot.dropout for slot in phase.state.model.slots} == {0.37}


def test_the_best_step_is_tested_and_saved_not_the_last(
    experiment_file: Path, tmp_path: Path
) -> None:
    bench = bench_of(experiment_file, tmp_path / "run", "run.validate_every=5")
    run(derive, experiment_file, "--run", tmp_path / "run", "--method", "interleaved")
    architecture = load_architecture(tmp_path / "run/architecture.json")
    phase = retrain_phase(bench, architecture)
    phase.open()
    inner = phase.step

    def spoiled(state: Any, batch: Any) -> Any:
        metrics = inner(state, batch)
        if state.step >= 12:
            with torch.no_grad():
                for parameter in state.model.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
        return metrics

    phase.step = spoiled
    phase.run(bench.experiment.run)
    result = json.loads(finish_retrain(bench, phase, architecture).read_text())
    assert result["best_step"] == 10
    assert result["validations"] == 5
    model = load_model(phase.folder / "model")
    again = bench.evaluate(model, bench.streams("valid"))
    assert again.nats_per_token == pytest.approx(result["valid"]["nats_per_token"], abs=1e-9)
    lines = (phase.folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    nats = {row["step"]: row["nats_per_token"] for row in rows if row["kind"] == "valid"}
    assert min(nats, key=lambda step: nats[step]) == 10
    assert result["valid"]["nats_per_token"] == pytest.approx(nats[10], abs=1e-9)
    assert nats[25] > nats[10]


@pytest.fixture
def derived(experiment_file: Path, tmp_path: Path) -> Path:
    """A run with a derived layout and no search."""
    folder = tmp_path / "run"
    run(derive, experiment_file, "--run", folder, "--set", "derive.method=layout",
        "--set", "derive.layout=a d d i")  # fmt: skip
    return folder


def test_several_seeds_are_averaged_and_the_verdict_is_of_the_test_text(
    experiment_file: Path, derived: Path
) -> None:
    seeds = ["--set", "compare.seeds=[3, 5]", "--set", "compare.opponents=[interleaved]"]
    run(compare, experiment_file, "--run", derived, *seeds)
    table = json.loads((derived / "comparison.json").read_text())
    assert [row["n"] for row in table["rows"]] == [2, 2]
    assert table["rows"][0]["role"] == "chosen"
    nats = {}
    for row in table["rows"]:
        results = [
            json.loads((derived / f"retrain/{row['name']}/seed-{seed}/result.json").read_text())
            for seed in (3, 5)
        ]
        for split, key in (("test", "nats_per_token"), ("valid", "valid_nats_per_token")):
            values = [result[split]["nats_per_token"] for result in results]
            assert values[0] != values[1]
            assert row[key] == pytest.approx(statistics.fmean(values), abs=1e-12)
        nats[row["name"]] = [result["test"]["nats_per_token"] for result in results]
    one, other = nats["layout-addi"], nats["interleaved"]
    mean = statistics.fmean(a - b for a, b in zip(one, other, strict=True))
    assert f"{mean:+.4f} nats/token" in table["verdict"]


def test_random_opponents_cost_what_the_chosen_layout_costs_and_are_other_networks(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    settings = ["compare.opponents=[random]", "compare.random_layouts=3"]
    bench = bench_of(experiment_file, derived, *settings)
    entries = contestants(bench)
    assert capsys.readouterr().out == (
        "random: there is no other network that costs within 5% of 8832 FLOPs per token: 2 of 3 "
        "random opponents\n"
    )
    costs = [bench.costs(entry.architecture.slots) for entry in entries]
    assert all(abs(c - costs[0]) <= TOLERANCE * costs[0] for c in costs)
    networks = [entry.architecture.letters().replace("i", "").split() for entry in entries]
    assert sorted(networks) == [["a", "d", "d"], ["d", "a", "d"], ["d", "d", "a"]]
    assert entries == contestants(bench), "the same every time"


def test_an_opponent_that_is_the_network_of_another_stands_once_and_is_not_trained(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chosen layout is the interleaved one but for a label."""
    folder = tmp_path / "run"
    candidates = "model.candidates=[attention, dense, {kind: dense, label: dense_too}, identity]"
    layout = "derive.layout=a dense_too a d"
    run(derive, experiment_file, "--run", folder, "--set", candidates, "--set", layout,
        "--method", "layout")  # fmt: skip
    opponents = "compare.opponents=[interleaved, sandwich, par]"
    capsys.readouterr()
    entries = contestants(bench_of(experiment_file, folder, candidates, opponents, "derive.p=2"))
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "interleaved = layout-a-dense_too-a-d: one network, trained and shown once",
        "par-2 = sandwich-2: one network, trained and shown once",
    ]
    names = [entry.architecture.name for entry in entries]
    assert names == ["layout-a-dense_too-a-d", "sandwich-2"]
    assert [entry.remarks for entry in entries] == [(said[0],), (said[1],)]
    assert not (folder / "architectures" / "interleaved.json").exists()


def test_where_no_network_costs_as_much_the_comparison_says_so(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "dense"
    run(derive, experiment_file, "--run", folder, "--method", "layout", "--set", ALL_DENSE)
    capsys.readouterr()
    entries = contestants(bench_of(experiment_file, folder, "compare.opponents=[par, random]"))
    assert [entry.architecture.letters() for entry in entries] == ["d d d d", "a d d d"]
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("random: there is no other network that costs within 5% of ")
    assert said.endswith(" FLOPs per token: 0 of 1 random opponents")


def test_opponents_of_other_sizes_are_refused(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting, said in (
        ("model.d_model=32", "d_model 16, but model.d_model is 32"),
        ("model.slots=6", "slots 4, but model.slots is 6"),
        ("model.softmax.tied=false", "but model.softmax is"),
        (
            "model.memory=0",
            "candidates[attention].memory 8, but model.candidates[attention].memory",
        ),
        ("model.clamp=3", "candidates[attention].clamp None, but model.candidates[attention]"),
        ("model.d_ffn=8", "candidates[dense].d_ffn 24, but model.candidates[dense].d_ffn is 8"),
    ):
        arguments = [experiment_file, "--run", derived, "--set", setting]
        assert said in refused(compare.main, capsys, *arguments)
    assert not (derived / "comparison.csv").exists()


def test_an_architecture_of_another_tokenizer_is_refused(
    experiment_file: Path, derived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.txt").write_text("zzz yyy xxx\n" * 500)
    arguments = [experiment_file, "--run", tmp_path / "other"]
    arguments += ["--architecture", derived / "architecture.json"]
    error = refused(retrain.main, capsys, *arguments)
    assert "made for another text or tokenizer (vocabulary 257" in error
    assert '--layout "a d d i"' in error


def test_a_changed_setting_is_refused_before_anything_trains(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(retrain, experiment_file, "--run", derived)
    before = sorted(derived.rglob("*.safetensors"))
    arguments = [experiment_file, "--run", derived, "--set", "retrain.steps=26"]
    assert "retrain.steps is 25 there and 26 here" in refused(compare.main, capsys, *arguments)
    assert sorted(derived.rglob("*.safetensors")) == before


def test_sides_that_were_validated_unalike_are_refused(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(retrain, experiment_file, "--run", derived, "--set", "run.validate_every=1")
    arguments = [experiment_file, "--run", derived, "--set", "compare.opponents=[interleaved]"]
    assert "run.validate_every: differed" in refused(compare.main, capsys, *arguments)


def test_compare_goes_on_after_another_derivation(experiment_file: Path, derived: Path) -> None:
    opponents = ["--set", "compare.opponents=[random]"]
    run(compare, experiment_file, "--run", derived, *opponents)
    run(derive, experiment_file, "--run", derived, "--method", "interleaved")
    run(compare, experiment_file, "--run", derived, *opponents)
    names = sorted(path.stem for path in (derived / "architectures").glob("*.json"))
    assert names[:2] == ["interleaved", "layout-addi"]
    assert len([name for name in names if name.startswith("random-")]) == 2


def test_a_name_is_never_taken_over_by_other_sizes(experiment_file: Path, derived: Path) -> None:
    run(retrain, experiment_file, "--run", derived, "--layout", "interleaved")
    path = derived / "architectures/interleaved.json"
    before = path.read_bytes()
    wider = ["--layout", "interleaved", "--set", "model.d_ffn=48"]
    run(retrain, experiment_file, "--run", derived, *wider)
    assert path.read_bytes() == before
    assert len(list((derived / "retrain").glob("interleaved-*"))) == 1


def test_a_damaged_architecture_is_kept_until_it_is_removed(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_rule = [str(experiment_file), "--run", str(derived), "--method", "interleaved"]
    assert derive.main(by_rule) == 0
    path = derived / "architectures/interleaved.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    said = refused(derive.main, capsys, *by_rule).splitlines()[-1]
    assert said.startswith(f"{path}: line ")
    assert said.endswith("(is the file whole?); remove it, and it is made again")
    assert path.read_bytes() == whole[: len(whole) // 2]
    path.unlink()
    assert derive.main(by_rule) == 0
    assert path.read_bytes() == whole


def test_the_commands_that_derive_prints_work_after_a_rule(
    derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(retrain, derived)
    assert json.loads((derived / "model/result.json").read_text())["seed"] == 0


def test_the_chosen_model_stays_that_of_the_first_seed(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(retrain, experiment_file, "--run", derived)
    before = (derived / "model/model.safetensors").read_bytes()
    run(retrain, experiment_file, "--run", derived, "--set", "run.seed=1")
    assert (derived / "model/model.safetensors").read_bytes() == before
    assert "stays that of seed 0" in capsys.readouterr().out


def test_the_chosen_model_is_carried_whole_or_not_at_all(
    experiment_file: Path,
    derived: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of an older model must never stand beside those of a newer one."""
    run(retrain, experiment_file, "--run", derived)
    before = files_of(derived / "model")
    run(derive, experiment_file, "--run", derived, "--method", "interleaved")

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.retrain.shutil.copy", full)
        said = refused(retrain.main, capsys, experiment_file, "--run", derived)
    assert "No space left on device" in said
    assert files_of(derived / "model") == before
    assert not list(derived.glob(".model.*"))
    run(retrain, experiment_file, "--run", derived)
    after = files_of(derived / "model")
    assert json.loads(after["result.json"])["name"] == "interleaved"
    assert json.loads(after["architecture.json"])["name"] == "interleaved"


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "architecture.json"])
def test_a_damaged_model_folder_is_made_again_and_never_carried_on(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run(retrain, experiment_file, "--run", derived)
    (result,) = derived.glob("retrain/*/seed-0/result.json")
    mine, carried = result.parent / "model" / name, derived / "model" / name
    whole = mine.read_bytes()
    mine.write_bytes(whole[:100])
    run(retrain, experiment_file, "--run", derived)
    assert "the model folder is made again from the best step" in capsys.readouterr().out
    assert mine.read_bytes() == carried.read_bytes() == whole


def test_other_dropouts_are_another_run(experiment_file: Path, derived: Path) -> None:
    run(retrain, experiment_file, "--run", derived)
    bench = bench_of(experiment_file, derived, "model.dropout_attention=0.2")
    phase = retrain_phase(bench, load_architecture(derived / "architecture.json"))
    with pytest.raises(ValueError, match=r"dropout\.attention is 0\.0 there and 0\.2 here"):
        phase.open()


def test_tied_and_untied_are_two_architectures(experiment_file: Path, tmp_path: Path) -> None:
    layout = DeriveConfig(method="interleaved")
    one, two = (
        derive_by(bench_of(experiment_file, tmp_path, *settings), layout)
        for settings in ((), ("model.tie_slots=2",))
    )
    assert one.slots == two.slots
    assert architecture_hash(one) != architecture_hash(two)


def test_the_summary_says_what_differs_from_the_usual(
    experiment_file: Path, tmp_path: Path
) -> None:
    settings = [
        *("model.tie_slots=2", "model.dropout_dense=0.3", "data.random_offset=true"),
        *("run.micro_batches=2", "retrain.optimiser.kind=sgd", "retrain.optimiser.momentum=0.9"),
        *("retrain.optimiser.clip_norm=null", "retrain.optimiser.clip_value=0.1"),
    ]
    bench = bench_of(experiment_file, tmp_path, *settings)
    config = DeriveConfig(method="layout", layout="a d a a")
    summary = retrain_phase(bench, derive_by(bench, config)).summary
    for said in (
        "every epoch begins at another place; in 2 micro-batches",
        "dropout: residual 0.1, embedding 0.1, attention 0, dense 0.3",
        "tied: 2 of 4 candidates of slots share weights with another slot's",
        "weights: sgd, momentum 0.9, ",
        "clip value 0.1",
    ):
        assert said in summary


def test_a_lost_model_folder_is_made_again(experiment_file: Path, derived: Path) -> None:
    run(retrain, experiment_file, "--run", derived)
    folder = derived / "retrain/layout-addi/seed-0"
    before = json.loads((folder / "result.json").read_text())
    shutil.rmtree(folder / "model")
    run(retrain, experiment_file, "--run", derived)
    assert (folder / "model/model.safetensors").exists()
    assert json.loads((folder / "result.json").read_text()) == before


def test_damaged_files_of_a_run_are_one_line(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(retrain, experiment_file, "--run", derived)
    folder = derived / "retrain/layout-addi/seed-0"
    (folder / "result.json").unlink()
    for name in ("metrics.jsonl", "identity.json"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(b"nonsense\n" + content[9:-9])
        error = refused(retrain.main, capsys, experiment_file, "--run", derived)
        assert name in error
        (folder / name).write_bytes(content)
    run(retrain, experiment_file, "--run", derived)


def test_an_architecture_without_costs_is_compared(experiment_file: Path, derived: Path) -> None:
    path = derived / "architecture.json"
    made = json.loads(path.read_text())
    made["costs"] = None
    path.write_text(json.dumps(made))
    run(compare, experiment_file, "--run", derived, "--set", "compare.opponents=[random]")


def test_a_second_process_in_the_same_folder_is_refused(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "search.py", str(experiment_file), "--run", str(tmp_path / "run")]
    command += ["--set", "search.steps=100000"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if " 5/100000" in line:
                break
        error = refused(search.main, capsys, *command[2:])
        assert "another process is training here" in error
    finally:
        process.kill()
        process.communicate()


def test_a_signal_in_the_last_step_still_stops(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    from training.console import Screen

    advance = Screen.advance

    def interrupting(self: Screen, step: int) -> None:
        advance(self, step)
        if step == 30:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Screen, "advance", interrupting)
        assert search.main([str(experiment_file), "--run", str(tmp_path / "run")]) == 130
    run(search, experiment_file, "--run", tmp_path / "run")


def test_the_next_command_repeats_the_settings_and_works(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [experiment_file, "--run", derived, "--set", "retrain.steps=12"]
    arguments += ["--set", "retrain.optimiser.warmup_steps=2"]
    run(retrain, *arguments)
    last = capsys.readouterr().out.splitlines()[-1]
    words = shlex.split(last.removeprefix("next: "))
    assert words[1].endswith("compare.py")
    assert "retrain.steps=12" in words
    run(compare, *words[2:], "--set", "compare.opponents=[interleaved]")


def test_text_that_stands_in_the_training_text_is_warned_of(
    experiment_file: Path, tmp_path: Path
) -> None:
    line = "the very same line of more than sixty characters stands in both of these texts\n"
    for name in ("train", "valid"):
        path = tmp_path / f"{name}.txt"
        path.write_text(line * 50 if name == "valid" else path.read_text() + line)
    phase = search_phase(bench_of(experiment_file, tmp_path / "run"))
    assert "warning: 50 of 50 long lines of valid stand in the training text" in phase.summary


def test_a_window_that_outreaches_the_memory_is_warned_of(
    experiment_file: Path, tmp_path: Path
) -> None:
    phase = search_phase(bench_of(experiment_file, tmp_path / "run", "model.window=40"))
    assert "warning: attention: window 40 needs memory 39, found 8" in phase.summary
    phase = search_phase(bench_of(experiment_file, tmp_path / "run", "model.window=9"))
    assert "warning: attention" not in phase.summary


def test_epochs_are_passes_over_the_text_of_each_phase(
    experiment_file: Path, tmp_path: Path
) -> None:
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
    bench = bench_of(experiment_file, tmp_path, *settings)
    whole, half = bench.training_batches().per_epoch, bench.search_batches[0].per_epoch
    assert abs(2 * half - whole) <= 1
    assert search_phase(bench).steps == 3 * half
    architecture = derive_by(bench, bench.experiment.derive.model_copy(update={"method": "par"}))
    assert retrain_phase(bench, architecture).steps == 3 * whole + round(0.5 * whole)


def test_a_derivation_says_which_choice_it_replaces(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run(derive, experiment_file, "--run", folder, "--method", "interleaved")
    assert "in place of" not in capsys.readouterr().out
    run(derive, experiment_file, "--run", folder, "--method", "par")
    assert "\nin place of interleaved (a d a d), which stays in" in capsys.readouterr().out
    run(derive, experiment_file, "--run", folder, "--method", "par")
    assert "in place of" not in capsys.readouterr().out


def test_epochs_that_the_schedules_do_not_fit_into_are_refused_by_key(
    experiment_file: Path, tmp_path: Path
) -> None:
    short = ("search.steps=null", "search.epochs=0.01", "search.optimiser.warmup_steps=0")
    with pytest.raises(ValueError, match=r"^search\.alpha\.freeze: with 0\.5 of 1 steps"):
        search_phase(bench_of(experiment_file, tmp_path, *short))
    with pytest.raises(ValueError, match=r"search\.alpha\.every: from step 15 of 30 steps on"):
        search_phase(bench_of(experiment_file, tmp_path, "search.alpha.every=15"))
    bench = bench_of(experiment_file, tmp_path, "retrain.steps=null", "retrain.epochs=0.01")
    with pytest.raises(ValueError, match=r"^retrain\.optimiser\.warmup_steps: 3 must be below"):
        _ = bench.stages


def test_tied_slots_go_through_all_phases(experiment_file: Path, tmp_path: Path) -> None:
    options = ("--set", "model.tie_slots=2", "--set", "run.micro_batches=2")
    folder = tmp_path / "tied"
    run(search, experiment_file, "--run", folder, *options)
    run(derive, folder)
    run(retrain, folder)
    run(compare, folder)
    assert json.loads((folder / "architecture.json").read_text())["tie_slots"] == 2
    assert load_model(folder / "model").tied.module_of(3) == 1
    free = run_json(experiment_file, tmp_path / "free", "interleaved")
    found = json.loads((folder / "retrain/interleaved/seed-0/result.json").read_text())
    slots = free["parameters"] - found["parameters"]
    halves = load_model(folder / "retrain/interleaved/seed-0/model").slots
    assert slots == sum(p.numel() for slot in halves for p in slot.parameters())
    with pytest.raises(ValueError, match=r"tie_slots 2, but model\.tie_slots is None"):
        contestants(bench_of(experiment_file, folder))


def run_json(experiment_file: Path, folder: Path, layout: str) -> Any:
    """The result of retraining a layout alone."""
    run(retrain, experiment_file, "--run", folder, "--layout", layout)
    return json.loads((folder / f"retrain/{layout}/seed-0/result.json").read_text())


@pytest.fixture
def _corpus_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus `files` counts its words, as the WikiText ones do."""

    def load(config: Any, place: Any) -> Corpus:
        corpus = load_files(config, place)
        corpus.notes["words"] = {
            split: sum(count_words(document.text) for document in corpus.documents(split))
            for split in ("valid", "test")
        }
        return corpus

    monkeypatch.setitem(CORPORA, "files", CorpusKind(load, needs="files"))


@pytest.mark.usefixtures("_corpus_with_words")
def test_word_perplexity_reaches_the_results_and_the_comparison(
    experiment_file: Path, derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = ["--set", "compare.seeds=[3, 5]", "--set", "compare.opponents=[interleaved]"]
    run(compare, experiment_file, "--run", derived, *seeds)
    words = count_words((experiment_file.parent / "test.txt").read_text())
    found = []
    for seed in (3, 5):
        path = derived / f"retrain/layout-addi/seed-{seed}/result.json"
        found.append(json.loads(path.read_text())["test"])
        assert found[-1]["words"] == words
        total = found[-1]["nats_per_token"] * found[-1]["tokens"]
        assert found[-1]["word_perplexity"] == pytest.approx(math.exp(total / words))
    with (derived / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    mean = statistics.fmean(result["nats_per_token"] for result in found)
    wanted = math.exp(mean * found[0]["tokens"] / words)
    assert float(rows[0]["word_perplexity"]) == pytest.approx(wanted)
    printed = capsys.readouterr().out
    assert f"{wanted:.4g}"[:4] in printed.replace(",", "")
    assert "per word" in printed


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
