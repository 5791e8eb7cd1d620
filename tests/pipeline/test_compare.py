"""The comparison: its baselines, its refusals, and means over seeds."""

import csv
import json
import math
import statistics
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

import compare
import derive
import retrain
from data import count_words
from nas.statistics.intervals import paired_interval, percent
from pipeline.baselines import entries_of
from pipeline.costs import time_models
from pipeline.run_files import chosen_architecture
from tests.pipeline.conftest import plan_of
from tests.refusal import refused
from tests.runs import settings, state_of
from tests.test_pipeline import run
from training.signals import Diverged


@pytest.mark.parametrize("script", [retrain, compare])
def test_a_training_of_another_experiment_is_refused_before_anything_is_written(
    derived: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = derived / "retrain" / chosen_architecture(derived).name / "seed-3"
    folder.mkdir(parents=True)
    (folder / "identity.json").write_text('{"retrain": {"steps": 3}}')
    before = state_of(derived)
    said = refused(script.main, capsys, derived, "--seeds", "0,3")
    assert said.splitlines()[-1].startswith(f"{folder}: holds another experiment")
    assert state_of(derived) == before


@pytest.mark.parametrize("script", [retrain, compare])
def test_without_an_architecture_the_way_to_one_is_said(
    experiment_file: Path, tmp_path: Path, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    said = refused(script.main, capsys, experiment_file, "--run", run)
    none = f"{run}/architecture.json: not found; run derive.py {run} first"
    assert said.splitlines()[-1].startswith(none)
    assert not run.exists()


@pytest.mark.usefixtures("_corpus_with_words")
def test_several_seeds_are_averaged_and_the_verdict_is_of_the_test_text(
    experiment_file: Path,
    derived: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = count_words((experiment_file.parent / "test.txt").read_text())
    timed = Mock(wraps=time_models)
    monkeypatch.setattr("pipeline.compare.time_models", timed)
    (derived / "model").mkdir()
    (derived / "model/result.json").write_text('{"name": "older"}')
    run(compare, derived, *settings("compare.seeds=[3, 5]", "compare.baselines=[interleaved]"))
    assert timed.call_args.kwargs == {"trained": True}
    table = json.loads((derived / "comparison.json").read_text())
    assert [row["n"] for row in table["rows"]] == [2, 2]
    assert "FLOPs count" not in "".join(table["remarks"]), "there are no spans"
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
        tests = [result["test"] for result in results]
        nats[row["name"]] = [test["nats_per_token"] for test in tests]
        for test in tests:
            assert test["words"] == words
            total = test["nats_per_token"] * test["tokens"]
            assert test["word_perplexity"] == pytest.approx(math.exp(total / words))
        per_word = math.exp(row["nats_per_token"] * tests[0]["tokens"] / words)
        assert row["word_perplexity"] == pytest.approx(per_word)
        bits = row["nats_per_token"] * tests[0]["tokens"] / tests[0]["bytes"] / math.log(2)
        assert row["bits_per_byte"] == pytest.approx(bits)
    one, other = nats["layout-addi"], nats["interleaved"]
    mean, half = paired_interval([a - b for a, b in zip(one, other, strict=True)])
    interval = f"95% interval {percent(mean - half)} to {percent(mean + half)}, 2 seeds"
    change = f"perplexity is {percent(mean)[1:]} {'higher' if mean > 0 else 'lower'} ({interval})"
    assert f"{change}, {mean:+.4f} nats/token" in table["verdict"]
    assert table["saving"].startswith("attention first (1 attention, 2 feed-forward): at ")
    assert table["saving"].endswith(change)
    assert table["letters"] == {"a": "attention", "d": "dense", "i": "identity"}
    with (derived / "comparison.csv").open() as file:
        first, *_ = csv.DictReader(file)
    assert float(first["word_perplexity"]) == table["rows"][0]["word_perplexity"]
    printed = capsys.readouterr().out
    assert f"{float(first['word_perplexity']):.4g}"[:4] in printed.replace(",", "")
    assert "/word" in printed
    assert f"{derived}/model holds older; for the chosen layout: retrain.py {derived}\n" in printed


def test_an_baseline_that_is_the_network_of_another_stands_once_and_is_not_trained(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The chosen layout is the interleaved one but for a label."""
    folder = tmp_path / "run"
    candidates = "model.candidates=[attention, dense, {kind: dense, label: dense_too}, identity]"
    layout = "derive.layout=a dense_too a d"
    run(derive, experiment_file, "--run", folder, "--set", candidates, "--set", layout,
        "--method", "layout")  # fmt: skip
    baselines = "compare.baselines=[interleaved, sandwich, par]"
    capsys.readouterr()
    entries = entries_of(plan_of(experiment_file, folder, candidates, baselines, "derive.p=2"))
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "interleaved = layout-a-dense_too-a-d: the same network, trained and shown once",
        "par-2 = sandwich-2: the same network, trained and shown once",
    ]
    names = [entry.architecture.name for entry in entries]
    assert names == ["layout-a-dense_too-a-d", "sandwich-2"]
    assert [entry.remarks for entry in entries] == [[said[0]], [said[1]]]
    assert not (folder / "architectures" / "interleaved.json").exists()


@pytest.mark.parametrize(
    ("kinds", "layout", "needs"),
    [
        ("short_conv, dense", "c d d d", "attention"),
        ("attention, short_conv", "a c c c", "dense"),
        ("short_conv, routing", "c r c c", "attention and dense"),
    ],
)
def test_rules_of_kinds_that_are_no_candidates_are_left_out_and_said(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    kinds: str, layout: str, needs: str,
) -> None:  # fmt: skip
    given = [f"model.candidates=[{kinds}]", f"derive.layout={layout}"]
    run(derive, experiment_file, "--run", tmp_path / "run", "--method", "layout", *settings(*given))
    capsys.readouterr()
    baselines = "compare.baselines=[interleaved, par, sandwich, permuted]"
    entries = entries_of(plan_of(experiment_file, tmp_path / "run", *given, baselines))
    assert capsys.readouterr().out.splitlines()[:3] == [
        f"{rule}: left out, as it needs {needs} among model.candidates"
        for rule in ("interleaved", "par", "sandwich")
    ]
    assert [entry.kinds for entry in entries] == [[], ["permuted"]]


def test_one_seed_names_the_command_of_more(
    derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = settings("compare.baselines=[interleaved]", "compare.seeds=[0]")
    run(compare, derived, *one)
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("to test the difference, train more seeds: ")
    assert last.endswith(f"compare.py {derived} --set '{one[1]}' --seeds 0,1,2")
    run(compare, derived, *one, "--seeds", "0,1")
    shown = capsys.readouterr().out
    assert "train more seeds" not in shown
    assert ", 2 seeds)" in shown


def test_baselines_of_other_sizes_are_refused(
    derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for setting, said in (
        ("model.d_model=32", "d_model 16, but model.d_model is 32"),
        ("model.n_blocks=6", "n_blocks 4, but model.n_blocks is 6"),
        ("model.softmax.tied=false", "but model.softmax is"),
        ("model.memory=0", "but model.candidates[attention] is"),
        ("model.clamp=3", "but model.candidates[attention] is"),
        ("model.d_ffn=8", "but model.candidates[dense] is"),
    ):
        assert said in refused(compare.main, capsys, derived, "--set", setting)
    assert not (derived / "comparison.csv").exists()


def test_of_a_baseline_that_diverges_it_is_said_that_it_can_be_left_out(
    derived: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pipeline.compare.retrain_all", Mock(side_effect=Diverged("par, seed 0")))
    with pytest.raises(SystemExit, match="3"):
        compare.main([str(derived)])
    said = capsys.readouterr().err
    assert "par, seed 0; a baseline can be left out (compare.baselines)" in said


def test_trainings_that_were_validated_more_or_less_often_are_no_repetitions(
    derived: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best step is the best of so many; refused before the baselines are trained."""
    run(retrain, derived, "--set", "run.validate_every=5")
    monkeypatch.setattr("pipeline.compare.train_entries", lambda *_: pytest.fail("it trains"))
    others = settings("compare.baselines=[interleaved]", "run.validate_every=10")
    said = refused(compare.main, capsys, derived, *others)
    assert "holds another experiment (validate_every was 5, is 10)" in said
