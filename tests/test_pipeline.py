"""Search, derive, retrain, compare: what each leaves behind, and that it is the same every time."""

import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compare
import derive
import retrain
import search
from data import load_tokenizer
from model import load_architecture, load_model
from model.attention_kernels import KERNELS
from pipeline.experiment import load_experiment
from tests.runs import (
    LAYOUT,
    ROOT,
    SEARCH,
    Capture,
    assert_same,
    killed_after,
    load_result,
    refused,
    rows,
    run,
    settings,
    state_of,
)

RESULT = "retrain/argmax-0/seed-0/result.json"


@pytest.mark.figures
def test_the_whole_pipeline_leaves_what_the_readme_says(
    experiment_file: Path, tmp_path: Path
) -> None:
    searched = tmp_path / "run"
    run(search, experiment_file, "--run", searched)
    run(derive, searched)
    run(retrain, searched)
    run(compare, searched)
    folder = searched / SEARCH
    with np.load(folder / "pi.npz", allow_pickle=False) as arrays:
        assert arrays["pi"].shape == (30, 4, 3)
        assert np.allclose(arrays["pi"].sum(-1), 1, atol=1e-6)
        assert arrays["alpha_start"] == 15
        assert np.allclose(arrays["pi"][:15], 1 / 3)
        assert arrays["tau"][0] == 1.0
        assert arrays["tau"][-1] == pytest.approx(0.3)
    header = "step,block,candidate,pi"
    assert (folder / "pi.csv").read_text().splitlines()[0] == header
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".png", ".gif"}
    architecture = load_architecture(searched / "architecture.json")
    assert len(architecture.blocks) == 4
    result = json.loads((searched / RESULT).read_text())
    assert result["test"]["bytes"] == len((searched.parent / "test.txt").read_bytes())
    assert result["test"]["tokens"] == result["test"]["bytes"]
    model = load_model(searched / "model")
    assert sum(parameter.numel() for parameter in model.parameters()) == result["parameters"]
    tokenizer = load_tokenizer(searched / "model")
    assert tokenizer.decode(tokenizer.encode("kan sel.")) == "kan sel."
    with (searched / "comparison.csv").open() as file:
        table = list(csv.DictReader(file))
    assert table[0]["role"] == "chosen"
    assert {row["name"] for row in table[1:]} <= {"interleaved", "par-5", "random-0"}
    assert float(table[0]["nats_per_token"]) == pytest.approx(result["test"]["nats_per_token"])
    said = json.loads((searched / "comparison.json").read_text())
    assert said["verdict"] == "not testable with one seed: it could be chance"
    assert said["saving"].endswith(" (one seed, no interval)") == (len(table) > 1)
    assert said["verdict"] in (searched / "report.html").read_text()


def test_law_11_the_same_seed_gives_the_same_run(
    searched: Path, experiment_file: Path, tmp_path: Path
) -> None:
    """Other settings: each run of law 8 below is compared with another of the same seed."""
    run(search, experiment_file, "--run", tmp_path / "again")
    assert_same(searched / SEARCH, tmp_path / "again" / SEARCH)
    run(search, experiment_file, "--run", tmp_path / "again", *settings("run.seed=1"))
    other = tmp_path / "again/search/seed-1/metrics.jsonl"
    assert rows(other) != rows(searched / SEARCH / "metrics.jsonl")


@pytest.mark.parametrize(
    "texts",
    [
        # The quick ones hold each kind of estimator, all data of alpha, each optimiser's states.
        "",
        "search.estimator=straight_through search.alpha.data=split "
        "search.optimiser.kind=lamb search.optimiser.clip_each_norm=0.03",
        "search.estimator=dirichlet search.alpha.data=shared search.optimiser.kind=adagrad",
        "search.estimator=single_path search.optimiser.kind=sgd search.optimiser.momentum=0.9 "
        "search.steps=null search.epochs=3 data.random_offset=true data.batch=16 data.segment=32",
        pytest.param(
            "search.estimator=spos search.alpha.estimator=two_path", marks=pytest.mark.slow
        ),
    ],
)
def test_law_8_a_killed_search_ends_as_one_never_killed(
    experiment_file: Path, tmp_path: Path, texts: str
) -> None:
    whole, hurt = tmp_path / "whole", tmp_path / "hurt"
    options = settings(*texts.split())
    run(search, experiment_file, "--run", whole, *options)
    for step in (3, 15, 28):
        killed_after(step, search, experiment_file, "--run", hurt, *options)
    run(search, experiment_file, "--run", hurt, *options)
    assert_same(whole / SEARCH, hurt / SEARCH)
    assert list((whole / SEARCH).glob("best-*.safetensors"))


def test_a_finished_search_started_again_changes_nothing_it_recorded(
    searched: Path, experiment_file: Path
) -> None:
    folder = searched / SEARCH
    names = ("pi.npz", "metrics.jsonl", "last.safetensors", "environment.json")
    before = {name: (folder / name).read_bytes() for name in names}
    for cadences in ((), settings("run.log_every=3")):
        run(search, experiment_file, "--run", searched, *cadences)
        assert {name: (folder / name).read_bytes() for name in names} == before


def test_an_edit_of_what_comes_after_the_search_holds_once_it_is_started_again(
    searched: Path, experiment_file: Path
) -> None:
    run(search, experiment_file, "--run", searched, *settings("derive.p=3"))
    assert load_experiment(searched / SEARCH / "experiment.yaml").derive.p == 3


def test_another_experiment_in_the_same_place_is_refused(
    searched: Path, experiment_file: Path, capsys: Capture
) -> None:
    before = state_of(searched)
    other = settings("search.tau.end=0.1")
    line = refused(search, capsys, experiment_file, "--run", searched, *other)
    assert "holds another experiment (search.tau.end was 0.3, is 0.1)" in line
    assert state_of(searched) == before


def test_what_changes_rounding_may_change_and_a_resume_says_that_it_is_not_exact(
    experiment_file: Path, half_way: Path, capsys: Capture
) -> None:
    run(search, experiment_file, "--run", half_way, *settings("run.attention=with_bias"))
    inexact = "not exactly as without the interruption: attention was auto, is with_bias"
    assert f"resumes from step 14 of 30; {inexact}" in capsys.readouterr().out
    recorded = json.loads((half_way / SEARCH / "environment.json").read_text())
    assert [entry["attention"] for entry in recorded["resumed"]] == ["with_bias"]


def test_training_steps_take_the_kernel_of_attention_that_is_asked_for(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    losses, taken = [], []
    known = KERNELS["with_bias"]

    def counted(*inputs: Any) -> Any:
        taken.append("with_bias")
        return known(*inputs)

    monkeypatch.setitem(KERNELS, "with_bias", counted)
    for chosen in ("auto", "with_bias"):
        folder = tmp_path / chosen
        texts = ("retrain.steps=6", "model.dropout=0", f"run.attention={chosen}")
        run(retrain, experiment_file, "--run", folder, *settings(*texts), *LAYOUT)
        assert bool(taken) == (chosen == "with_bias")
        assert ("; attention with_bias" in capsys.readouterr().out) == (chosen == "with_bias")
        log = rows(folder / "retrain/layout-adad/seed-0/metrics.jsonl")
        losses.append([row["loss_nats"] for row in log if row["kind"] == "train"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_recompute_may_change_at_any_time_and_changes_no_number(
    searched: Path, experiment_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    arguments = [experiment_file, "--run", tmp_path / "other"]
    killed_after(16, search, *arguments, *settings("run.recompute=true"))
    assert "; recompute True" in capsys.readouterr().out
    run(search, *arguments)
    assert "not exactly" not in capsys.readouterr().out
    assert_same(searched / SEARCH, tmp_path / "other" / SEARCH)


def test_retrain_needs_an_architecture_and_an_experiment_but_no_search(
    searched: Path, experiment_file: Path, tmp_path: Path
) -> None:
    run(derive, searched)
    shutil.copy(searched / "architecture.json", tmp_path / "a.json")
    shutil.rmtree(searched)
    for given in (["--architecture", tmp_path / "a.json"], *(["--layout", layout] for layout in (
        "a d i d", "sandwich"))):  # fmt: skip
        run(retrain, experiment_file, "--run", tmp_path / "alone", *given)
    layouts = {
        path.parent.parent.name: json.loads(path.read_text())["layout"]
        for path in (tmp_path / "alone").glob("retrain/*/seed-0/result.json")
    }
    assert layouts["layout-adid"] == "a d i d"
    assert layouts["sandwich-2"] == "a a d d"
    assert len(layouts) == 3


def test_a_derivation_by_a_rule_begins_a_run_and_leaves_its_command(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    words = ["derive.py", str(experiment_file), "--method", "par", "--run", str(folder)]
    monkeypatch.setattr(sys, "argv", words)
    derive.main()
    (row,) = (folder / "commands.jsonl").read_text(encoding="utf-8").splitlines()
    assert "--method par" in json.loads(row)["command"]
    assert (folder / "architecture.json").exists()


def test_a_layout_by_hand_can_be_chosen_and_compared_without_a_search(
    experiment_file: Path, tmp_path: Path, capsys: Capture
) -> None:
    """By the command that is printed; what is trained is not trained again."""
    folder, steps = tmp_path / "own", "retrain.steps=20"
    for layout in ("interleaved", "a d i d"):
        run(retrain, experiment_file, "--run", folder, "--layout", layout, *settings(steps))
    *_, said = capsys.readouterr().out.splitlines()
    words = shlex.split(said.removeprefix("to choose this layout: "))[2:]
    assert (words[0], words[-1]) == (str(folder), steps)
    run(derive, *words)
    trained = (folder / "retrain/layout-adid/seed-0/result.json").stat()
    run(retrain, folder)
    run(compare, folder, "--set", "compare.baselines=[interleaved]")
    assert (folder / "retrain/layout-adid/seed-0/result.json").stat() == trained
    assert "layout-adid" in (folder / "comparison.csv").read_text()


def test_compare_trains_the_baselines_exactly_as_retrain_does(
    searched: Path, experiment_file: Path, tmp_path: Path
) -> None:
    run(derive, searched)
    run(retrain, searched)
    run(compare, searched)
    run(retrain, experiment_file, "--run", tmp_path / "own", "--layout", "interleaved")
    one, two = (folder / "retrain/interleaved/seed-0" for folder in (searched, tmp_path / "own"))
    assert load_result(one / "result.json") == load_result(two / "result.json")


@pytest.mark.parametrize("name", [pytest.param("SIGINT", marks=pytest.mark.slow), "SIGTERM"])
def test_a_signal_saves_and_prints_the_command_that_goes_on(
    experiment_file: Path, tmp_path: Path, name: str
) -> None:
    command = [sys.executable, "search.py", str(experiment_file), "--run", str(tmp_path / "s")]
    command += settings("search.steps=100000", "run.checkpoint_every=100000")
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if " 10/100000" in line:
            break
    process.send_signal(getattr(signal, name))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + getattr(signal, name)
    assert "the state is saved" in error
    assert "search.py" in error.splitlines()[-1]
    assert "Traceback" not in error
    assert (tmp_path / "s/search/seed-0/last.safetensors").exists()


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_a_tracker_is_an_extra_that_is_named_where_it_is_missing(
    experiment_file: Path,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    tracker: str,
) -> None:
    monkeypatch.setattr("utils.validation.find_spec", lambda name: None)
    arguments = [experiment_file, "--run", tmp_path / "run", *settings(f"run.trackers=[{tracker}]")]
    for more in ([], ["--check"]):
        said = refused(search, capsys, *arguments, *more)
        assert f"the package {tracker} is missing; pip install -r requirements-extras.lock" in said
    assert not (tmp_path / "run").exists()
