"""Search, derive, retrain, compare: what each leaves behind, and that it is the same every time."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import compare
import derive
import retrain
import search
from data import load_tokenizer
from model import load_architecture, load_model
from model.attention_kernels import KERNELS
from nas.search.trajectory import Trajectory
from training.memory import Forecast

ROOT = Path(__file__).resolve().parents[1]
TIME = {"elapsed_s", "tokens_per_s"}


def rows(path: Path) -> list[dict[str, Any]]:
    """Metrics without the columns of time."""
    lines = path.read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIME} for line in lines]


def run(script: Any, *arguments: Any) -> None:
    assert script.main([str(argument) for argument in arguments]) == 0


@pytest.mark.figures
def test_the_whole_pipeline_leaves_what_the_readme_says(
    experiment_file: Path, tmp_path: Path
) -> None:
    searched = tmp_path / "run"
    run(search, experiment_file, "--run", searched)
    run(derive, searched)
    run(retrain, searched)
    run(compare, searched)
    folder = searched / "search/seed-0"
    with np.load(folder / "pi.npz", allow_pickle=False) as arrays:
        assert arrays["pi"].shape == (30, 4, 3)
        assert np.allclose(arrays["pi"].sum(-1), 1, atol=1e-6)
        assert arrays["alpha_start"] == 15
        assert np.allclose(arrays["pi"][:15], 1 / 3)
        assert arrays["tau"][0] == 1.0
        assert arrays["tau"][-1] == pytest.approx(0.3)
    header = "step,slot,candidate,pi"
    assert (folder / "pi.csv").read_text().splitlines()[0] == header
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".png", ".gif"}
    architecture = load_architecture(searched / "architecture.json")
    assert len(architecture.slots) == 4
    result = json.loads((searched / "retrain/argmax-0/seed-0/result.json").read_text())
    assert result["test"]["bytes"] == len((searched.parent / "test.txt").read_bytes())
    assert result["test"]["tokens"] == result["test"]["bytes"]
    with (searched / "comparison.csv").open() as file:
        table = list(csv.DictReader(file))
    assert table[0]["role"] == "searched"
    assert {row["name"] for row in table[1:]} <= {"interleaved", "par-5", "random-0"}
    assert float(table[0]["nats_per_token"]) == pytest.approx(result["test"]["nats_per_token"])
    verdict = json.loads((searched / "comparison.json").read_text())["verdict"]
    assert verdict == "no verdict possible (n = 1)"
    assert "no verdict possible (n = 1)" in (searched / "report.html").read_text()


def test_the_model_folder_loads_in_one_line_without_the_search(searched: Path) -> None:
    run(derive, searched)
    run(retrain, searched)
    code = (
        "import sys\n"
        "for name in ('nas', 'training', 'data', 'hpo', 'pipeline'):\n"
        "    sys.modules[name] = None\n"
        f"from model import load_model\nmodel = load_model({str(searched / 'model')!r})\n"
        "print(sum(p.numel() for p in model.parameters()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (
        int(done.stdout)
        == json.loads((searched / "retrain/argmax-0/seed-0/result.json").read_text())["parameters"]
    )
    tokenizer = load_tokenizer(searched / "model")
    ids_BT = torch.from_numpy(tokenizer.encode("kan sel.")[None].astype(np.int64))
    model = load_model(searched / "model")
    with torch.inference_mode():
        h_BTD, _, _ = model(ids_BT, model.initial_state(1))
        total = model.log_prob(h_BTD).exp().sum(-1)
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5)


def test_law_11_the_same_seed_gives_the_same_run(
    searched: Path, experiment_file: Path, tmp_path: Path
) -> None:
    """Other settings: each run of law 8 below is compared with another of the same seed."""
    run(search, experiment_file, "--run", tmp_path / "again")
    one, two = (folder / "search/seed-0" for folder in (searched, tmp_path / "again"))
    assert (one / "pi.npz").read_bytes() == (two / "pi.npz").read_bytes()
    assert rows(one / "metrics.jsonl") == rows(two / "metrics.jsonl")
    weights = [load_file(folder / "last.safetensors") for folder in (one, two)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    run(search, experiment_file, "--run", tmp_path / "again", "--set", "run.seed=1")
    other = tmp_path / "again/search/seed-1/metrics.jsonl"
    assert rows(other) != rows(one / "metrics.jsonl")


class Killed(BaseException):
    """Stands for a SIGKILL: nothing after it runs."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the loop die after `step` steps, before anything of that step is written."""
    call = Trajectory.__call__

    def dying(self: Trajectory, state: Any, metrics: Any) -> None:
        if state.step == step:
            raise Killed
        call(self, state, metrics)

    monkeypatch.setattr(Trajectory, "__call__", dying)


SLOW = pytest.mark.slow
EPOCHS = ("search.steps=null", "search.epochs=3", "data.random_offset=true")


@pytest.mark.parametrize(
    "settings",
    [
        # The quick ones hold each kind of estimator, all data of alpha, each optimiser's states.
        [],
        [
            *("search.estimator=straight_through", "search.alpha.data=split"),
            *("search.optimiser.kind=lamb", "search.optimiser.clip_each_norm=0.03"),
        ],
        [
            *("search.estimator=dirichlet", "search.frozen=spos", "search.tau.schedule=learnable"),
            *("search.alpha.data=shared", "search.optimiser.kind=adagrad"),
        ],
        [
            *("search.estimator=single_path", "search.optimiser.kind=sgd"),
            *("search.optimiser.momentum=0.9", *EPOCHS, "data.batch=16", "data.segment=32"),
        ],
        pytest.param(["search.estimator=single_path"], marks=SLOW),
        pytest.param(["search.estimator=straight_through", "search.alpha.data=split"], marks=SLOW),
        pytest.param(["search.alpha.data=shared"], marks=SLOW),
        pytest.param(["search.optimiser.kind=lamb", "search.estimator=single_path"], marks=SLOW),
        pytest.param(["search.estimator=spos", "search.alpha.estimator=two_path"], marks=SLOW),
        pytest.param(
            ["search.estimator=dirichlet", "search.frozen=spos", "search.tau.schedule=learnable"],
            marks=SLOW,
        ),
        pytest.param(
            ["search.optimiser.kind=adagrad", "search.optimiser.clip_each_norm=0.03"], marks=SLOW
        ),
        pytest.param(["search.optimiser.kind=sgd", "search.optimiser.momentum=0.9"], marks=SLOW),
        pytest.param([*EPOCHS, "data.batch=16", "data.segment=32"], marks=SLOW),
    ],
)
def test_law_8_a_killed_search_ends_as_one_never_killed(
    experiment_file: Path, tmp_path: Path, settings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [part for setting in settings for part in ("--set", setting)]
    run(search, experiment_file, "--run", tmp_path / "whole", *options)
    for step in (4, 16, 29):
        with monkeypatch.context() as patched:
            kill_at(patched, step)
            with pytest.raises(Killed):
                run(search, experiment_file, "--run", tmp_path / "killed", *options)
    run(search, experiment_file, "--run", tmp_path / "killed", *options)
    whole, killed = (tmp_path / name / "search/seed-0" for name in ("whole", "killed"))
    assert (whole / "pi.npz").read_bytes() == (killed / "pi.npz").read_bytes()
    assert (whole / "pi.csv").read_bytes() == (killed / "pi.csv").read_bytes()
    assert rows(whole / "metrics.jsonl") == rows(killed / "metrics.jsonl")
    best = [path.name for path in whole.glob("best-*.safetensors")]
    assert best
    for name in ("last.safetensors", *best):
        one, two = load_file(whole / name), load_file(killed / name)
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_finished_search_started_again_changes_nothing_it_recorded(
    searched: Path, experiment_file: Path
) -> None:
    folder = searched / "search/seed-0"
    names = ("pi.npz", "metrics.jsonl", "last.safetensors", "environment.json")
    before = {name: (folder / name).read_bytes() for name in names}
    run(search, experiment_file, "--run", searched)
    assert {name: (folder / name).read_bytes() for name in names} == before


def test_another_experiment_in_the_same_place_is_refused(
    searched: Path, experiment_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in searched.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        run(search, experiment_file, "--run", searched, "--set", "search.tau.end=0.1")
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "holds another experiment (search.tau.end is left out there and 0.1 here)" in message
    assert "Traceback" not in message
    assert sorted((path, path.stat().st_mtime_ns) for path in searched.rglob("*")) == before


def test_cadences_may_change_between_start_and_resume(
    searched: Path, experiment_file: Path
) -> None:
    run(search, experiment_file, "--run", searched, "--set", "run.log_every=3")


@pytest.mark.parametrize(
    ("setting", "said_of_it", "key", "value"),
    [
        ("run.micro_batches=3", "micro_batches was 1, is 3", "micro_batches", 3),
        ("run.attention=with_bias", "attention was auto, is with_bias", "attention", "with_bias"),
    ],
)
def test_what_changes_rounding_may_change_and_a_resume_says_that_it_is_not_exact(
    setting: str,
    said_of_it: str,
    key: str,
    value: object,
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:
        kill_at(patched, 16)
        with pytest.raises(Killed):
            run(search, experiment_file, "--run", tmp_path / "run")
    run(search, experiment_file, "--run", tmp_path / "run", "--set", setting)
    said = capsys.readouterr().out
    assert f"goes on from step 14 of 30; not exactly as it would have: {said_of_it}" in said
    recorded = json.loads((tmp_path / "run/search/seed-0/environment.json").read_text())
    assert [entry[key] for entry in recorded["resumed"]] == [value]


def test_training_steps_take_the_kernel_of_attention_that_is_asked_for(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, taken = [], []
    known = KERNELS["with_bias"]

    def counted(*given: Any) -> Any:
        taken.append("with_bias")
        return known(*given)

    monkeypatch.setitem(KERNELS, "with_bias", counted)
    for chosen in ("auto", "with_bias"):
        folder = tmp_path / chosen
        options = ["--set", "retrain.steps=6", "--set", "model.dropout=0", "--layout", "a d a d"]
        run(retrain, experiment_file, "--run", folder, *options, "--set", f"run.attention={chosen}")
        assert bool(taken) == (chosen == "with_bias")
        assert ("; attention with_bias" in capsys.readouterr().out) == (chosen == "with_bias")
        log = rows(folder / "retrain/layout-adad/seed-0/metrics.jsonl")
        found.append([row["loss_nats"] for row in log if row["kind"] == "train"])
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_recompute_may_change_at_any_time_and_changes_no_number(
    searched: Path,
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patched:
        kill_at(patched, 16)
        with pytest.raises(Killed):
            run(search, experiment_file, "--run", tmp_path / "other", "--set", "run.recompute=true")
    assert "slots computed again in the backward pass" in capsys.readouterr().out
    run(search, experiment_file, "--run", tmp_path / "other")
    assert "not exactly" not in capsys.readouterr().out
    one, two = (folder / "search/seed-0" for folder in (searched, tmp_path / "other"))
    assert rows(one / "metrics.jsonl") == rows(two / "metrics.jsonl")
    assert (one / "pi.npz").read_bytes() == (two / "pi.npz").read_bytes()


@pytest.mark.forecast
def test_law_11_the_forecast_of_memory_changes_no_byte(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def both_phases(folder: Path) -> str:
        options = ["--run", folder, "--set", "run.ignore_memory_forecast=true"]
        run(search, experiment_file, *options)
        run(retrain, experiment_file, *options, "--layout", "a d i d")
        return capsys.readouterr().out

    with monkeypatch.context() as patched:
        patched.setattr("pipeline.resources.memory_bytes", lambda device: 100_000)
        said = both_phases(tmp_path / "with")
    warning = " MB of memory are needed, and cpu has 0.1 MB: set run.recompute=true, raise "
    assert said.count("\nmemory: about ") == said.count(warning) == 2
    assert "\nmemory: about 0 MB" not in said
    nothing = Forecast(0, 0, 0, 0, 0, 0)
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.resources.forecast", lambda *_: nothing)
        said = both_phases(tmp_path / "without")
    assert "\nmemory: about 0 MB beyond start (weights 0, " in said
    assert "and cpu has" not in said
    for phase in ("search", "retrain"):
        one, two = (next((tmp_path / at / phase).rglob("seed-0")) for at in ("with", "without"))
        assert rows(one / "metrics.jsonl") == rows(two / "metrics.jsonl")
        file = "pi.npz" if phase == "search" else "model/model.safetensors"
        assert (one / file).read_bytes() == (two / file).read_bytes()


def test_retrain_needs_an_architecture_and_an_experiment_but_no_search(
    searched: Path, experiment_file: Path, tmp_path: Path
) -> None:
    run(derive, searched)
    shutil.copy(searched / "architecture.json", tmp_path / "a.json")
    shutil.rmtree(searched)
    run(
        retrain, experiment_file, "--run", tmp_path / "alone", "--architecture", tmp_path / "a.json"
    )
    run(retrain, experiment_file, "--run", tmp_path / "alone", "--layout", "a d i d")
    run(retrain, experiment_file, "--run", tmp_path / "alone", "--layout", "sandwich")
    layouts = {
        path.parent.parent.name: json.loads(path.read_text())["layout"]
        for path in (tmp_path / "alone").glob("retrain/*/seed-0/result.json")
    }
    assert layouts["layout-adid"] == "a d i d"
    assert layouts["sandwich-2"] == "a a d d"
    assert len(layouts) == 3


def test_compare_trains_the_opponents_exactly_as_retrain_does(
    searched: Path, experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(derive, searched)
    run(retrain, searched)
    capsys.readouterr()
    run(compare, searched)
    lines = capsys.readouterr().out.splitlines()
    logs = [path.read_text() for path in (searched / "retrain").glob("*/seed-0/train.log")]
    assert len(logs) > 1
    for words, count in {"text: ": 1, "tokenizer: ": 1, "layout ": len(logs) - 1}.items():
        assert len([line for line in lines if line.startswith(words)]) == count
        assert all(f"\n{words}" in f"\n{log}" for log in logs)
    run(retrain, experiment_file, "--run", tmp_path / "own", "--layout", "interleaved")
    one, two = (
        json.loads((folder / "retrain/interleaved/seed-0/result.json").read_text())
        for folder in (searched, tmp_path / "own")
    )
    for result in (one, two):
        del result["elapsed_s"]
    assert one == two


def test_the_saved_experiment_is_a_valid_one_and_runs_the_same(
    searched: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "again.yaml"
    shutil.copy(searched / "search/seed-0/experiment.yaml", saved)
    run(search, saved, "--run", tmp_path / "again")
    one, two = (folder / "search/seed-0/pi.npz" for folder in (searched, tmp_path / "again"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_prints_the_command_that_goes_on(
    experiment_file: Path, tmp_path: Path, name: str
) -> None:
    import signal

    command = [sys.executable, "search.py", str(experiment_file), "--run", str(tmp_path / "s")]
    command += ["--set", "search.steps=100000", "--set", "run.checkpoint_every=100000"]
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


def test_a_run_that_diverges_ends_with_3_and_says_where(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["optimiser.kind=sgd", "optimiser.lr=1e9", "optimiser.clip_norm=null"]
    arguments = [str(experiment_file), "--run", str(tmp_path / "run")]
    for setting in settings:
        arguments += ["--set", f"search.{setting}"]
    assert search.main(arguments) == 3
    error = capsys.readouterr().err
    assert "diverged at step 5: parameter " in error
    assert "lower optimiser.lr" in error
    assert not (tmp_path / "run/search/seed-0/last.safetensors").exists()


def test_tensorboard_is_an_extra_that_is_named_where_it_is_missing(
    experiment_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SystemExit) as stop:
        search.main([str(experiment_file), "--run", str(tmp_path / "run"), "--tensorboard"])
    assert stop.value.code == 2
    assert "pip install 'tensorboard" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_the_rows(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert folder == str(tmp_path / "run/search/seed-0/tensorboard")
            assert purge_step == 1

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            assert isinstance(value, float)
            written.append((tag, step))

        def close(self) -> None:
            written.append(("closed", 0))

    module = type(sys)("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    run(search, experiment_file, "--run", tmp_path / "run", "--tensorboard")
    assert ("train/loss_nats", 5) in written
    assert ("train/tau", 30) in written
    assert ("valid_onehot/bits_per_byte", 30) in written
    assert written[-1] == ("closed", 0)
