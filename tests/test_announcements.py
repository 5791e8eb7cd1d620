"""What takes long is named before it begins, and what was said is not said again."""

import subprocess
import sys
from pathlib import Path

import pytest

import compare
import derive
from pipeline import exit_codes
from tests.runs import ROOT, Capture, run, settings


def test_the_import_of_torch_is_announced_before_it_begins() -> None:
    """Where torch cannot be imported, the announcement is there all the same, and first."""
    code = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError('none', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import search; search.main(['x.yaml'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first == "loading torch"
    remedy = "run `make setup`, then use .venv/bin/python"
    assert second == f"the package torch is missing: {remedy}"


def test_what_is_loaded_is_not_announced(capsys: Capture) -> None:
    with exit_codes.user_errors():
        pass
    assert capsys.readouterr().err == ""


def test_one_process_of_several_announces(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    for rank, said in (("0", "loading nothing_of_that_name\n"), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        with exit_codes.user_errors(loads="nothing_of_that_name"):
            pass
        assert capsys.readouterr().err == said


def test_a_comparison_says_the_shared_settings_once_and_names_each_training(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("nas.costs.latency._REST_S", 0.0)
    folder = tmp_path / "run"
    short = settings("retrain.steps=4", "retrain.optimiser.warmup_steps=1")
    layout = ["--method", "layout", *settings("derive.layout=d d d d")]
    run(derive, experiment_file, "--run", folder, *layout, *short)
    short += settings("compare.opponents=[interleaved]")
    run(compare, experiment_file, "--run", folder, *short, *settings("compare.seeds=[0]"))
    first = capsys.readouterr()
    run(compare, experiment_file, "--run", folder, *short, *settings("compare.seeds=[0,1]"))
    second = capsys.readouterr()
    assert "\nmeasuring the latency of 2 models in turn\n" in first.err
    assert second.err.startswith("files: reading the text\n")
    trainings = (("layout-dddd", 0), ("interleaved", 0), ("layout-dddd", 1), ("interleaved", 1))
    for printed, count in ((first, 2), (second, 4)):
        lines = printed.out.splitlines()
        assert [line for line in lines if line.startswith("training ")] == [
            f"training {number} of {count}: {name}, seed {seed}"
            f"{', which is done' if count == 4 and seed == 0 else ''}"
            for number, (name, seed) in enumerate(trainings[:count], start=1)
        ]
        counted = [line.partition(";")[0] for line in lines if line.startswith("[")]
        assert counted == [
            f"[{number}/2] trained {name}, seed {seed}"
            for number, (name, seed) in enumerate(trainings[count - 2 : count], start=1)
        ]
        for words in ("text: ", "tokenizer: ", "streams: ", "softmax: ", "weights: "):
            assert len([line for line in lines if line.startswith(words)]) == 1
        assert lines.count("testing the weights of step 4, the best on validation") == 2
        last = lines[lines.index(f"training {count} of {count}: interleaved, seed {count // 4}") :]
        header = last[1 : next(i for i, line in enumerate(last) if line.startswith("retrain "))]
        assert {line.partition(" ")[0] for line in header} - {"memory:"} == {"layout"}
    for log in folder.glob("retrain/*/seed-*/train.log"):
        begun = {line.partition(" ")[0] for line in log.read_text().splitlines()}
        assert {"text:", "tokenizer:", "streams:", "softmax:", "weights:", "layout"} <= begun
