"""Damaged files of a finished run, read by derive, retrain, compare: one line that names them."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import compare
import derive
import retrain
import search
from pipeline.results import read_result
from report.page import write_report
from report.run_files import read_trajectory
from tests.conftest import TINY, write_text
from tests.damage import lying, wrong_json
from training.run_dir import record_resume

RESULT = "retrain/argmax-0/seed-0/result.json"
IDENTITY = "retrain/argmax-0/seed-0/identity.json"
PI = "search/seed-0/pi.npz"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with texts, cache and a finished run of all four phases, made once."""
    root = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PARNAS_CACHE", str(root / "cache"))
        patched.setattr("report.search_figures.write_search_figures", lambda folder: [])
        patched.setattr("report.page.write_report", lambda folder: folder / "report.html")
        for seed, (name, size) in enumerate({"train": 6000, "valid": 900, "test": 1200}.items()):
            write_text(root / f"{name}.txt", size, seed)
        (root / "tiny.yaml").write_text(TINY.replace("FOLDER", root.as_posix()))
        settings = ["--set", "search.steps=8", "--set", "retrain.steps=6", "--set",
                    "search.optimiser.warmup_steps=1", "--set", "retrain.optimiser.warmup_steps=1",
                    "--set", "compare.opponents=[interleaved]"]  # fmt: skip
        assert search.main([str(root / "tiny.yaml"), "--run", str(root / "run"), *settings]) == 0
        for script in (derive, retrain, compare):
            assert script.main([str(root / "run")]) == 0
        yield root


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, to be damaged."""
    monkeypatch.setenv("PARNAS_CACHE", str(finished / "cache"))
    monkeypatch.setattr("report.page.write_report", lambda folder: folder / "report.html")
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path / "run"


Said = Callable[[Any, Path], str]


@pytest.fixture
def said(run: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """What a script that must refuse says on stderr: one line that names the file."""

    def of(script: Any, path: Path, *arguments: str) -> str:
        capsys.readouterr()
        try:
            code = script.main([str(run), *arguments])
        except SystemExit as stop:
            code = stop.code
        err = capsys.readouterr().err
        progress = ("files: ", "preparing the opponents: ")
        lines = [line for line in err.splitlines() if not line.startswith(progress)]
        assert code == 2, (code, err)
        assert len(lines) == 1, err
        assert str(path) in lines[0], err
        assert lines[0].isprintable()
        assert len(lines[0]) < 2000
        return lines[0]

    return of


def test_a_damaged_pi_npz_derives_nothing(run: Path, said: Said) -> None:
    path = run / PI
    raw, before = path.read_bytes(), (run / "architecture.json").read_bytes()
    contents = list(lying(raw))
    assert len(contents) > 45
    for content in contents:
        path.write_bytes(content)
        said(derive, path)
    assert (run / "architecture.json").read_bytes() == before
    path.write_bytes(raw)
    assert derive.main([str(run)]) == 0


RESULTS = {
    "test": [None, 3, [], {}], "valid": [None, {"nats_per_token": 1}], "validations": [None, "x"],
    "name": [3, None, "x" * 300], "seed": [-1, 0.5, "0"], "layout": [None], "parameters": ["x", -1],
    "flops_per_token": [float("nan"), float("inf"), "x"], "steps": [0, None], "best_step": [[]],
}  # fmt: skip


def test_a_damaged_result_ends_a_comparison(run: Path, said: Said) -> None:
    path = run / RESULT
    raw = path.read_bytes()
    contents = list(wrong_json(raw))
    whole = json.loads(raw)
    contents += [
        json.dumps({**whole, key: value}).encode()
        for key, values in RESULTS.items()
        for value in values
    ]
    contents += [
        json.dumps({**whole, "test": {**whole["test"], key: value}}).encode()
        for key in (*whole["test"], "word_perplexity", "words")
        for value in (None, "x", float("nan"), -1)
        if value is not None or key not in ("bytes", "bits_per_byte")  # none where text is lost
    ]
    contents += [
        json.dumps({k: v for k, v in whole.items() if k != key}).encode() for key in RESULTS
    ]
    assert len(contents) > 50
    for number, content in enumerate(contents):
        path.write_bytes(content)
        # Each comparison opens all phases; every seventh is enough, the rest reads the same.
        if number % 7 == 0:
            said(compare, path)
        with pytest.raises(ValueError, match=r"result\.json") as caught:
            read_result(path)
        assert "\n" not in str(caught.value)
    path.unlink()
    os.mkfifo(path)
    said(compare, path)


def test_a_damaged_identity_is_nobodys(run: Path, said: Said) -> None:
    path = run / IDENTITY
    raw = path.read_bytes()
    for number, content in enumerate(wrong_json(raw)):
        path.write_bytes(content)
        said(retrain if number % 2 else compare, path)
    for changed in ({"data": 3}, {"dropout": "\x1b[1m" * 1000}, {"x" * 500: 1}):
        path.write_text(json.dumps({**json.loads(raw), **changed}))
        said(retrain, path.parent)


def test_a_damaged_environment_ends_no_resume(run: Path) -> None:
    """No result depends on it; what is not known any more is said."""
    folder = run / "retrain/argmax-0/seed-0"
    path = folder / "environment.json"
    raw = path.read_bytes()
    for content in (*wrong_json(raw), b'{"resumed": 3}'):
        path.write_bytes(content)
        said = record_resume(folder, torch.device("cpu"), 3, micro_batches=1)
        assert said[0].startswith("torch was not recorded, is ")
        assert [entry["step"] for entry in json.loads(path.read_bytes())["resumed"]] == [3]
    path.write_bytes(raw)
    assert record_resume(folder, torch.device("cpu"), 3, micro_batches=1) == []


REPORTED = ["comparison.json", "architecture.json", "search/seed-0/environment.json", RESULT]


@pytest.mark.parametrize("name", REPORTED)
def test_a_report_of_damaged_files_is_refused_by_name(
    run: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    path = run / name
    for content in wrong_json(path.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=path.name):
            write_report(run)


def test_a_report_reads_no_damaged_arrays(run: Path) -> None:
    path = run / PI
    refused = 0
    for content in lying(path.read_bytes()):
        path.write_bytes(content)
        try:
            read_trajectory(path)
        except ValueError as error:
            refused += str(error).startswith(f"{path}: ")
    assert refused > 50


ARCHITECTURES = [
    {"version": 2}, {"name": "../x"}, {"name": "/etc/x"}, {"name": "a/../b"}, {"name": "\x1b[1m"},
    {"d_model": 0}, {"d_model": 10**30}, {"d_model": "16"}, {"slots": []}, {"slots": None},
    {"softmax": {"cutoffs": [5, 5]}}, {"softmax": {"factor": 1e308, "cutoffs": [5]}},
    {"softmax": {"cutoffs": [10**6]}}, {"vocabulary_size": 2**40}, {"tokenizer": {}},
    {"tokenizer": {"digest": 3}}, {"more": 1}, {"evidence": 3}, {"provenance": {"a": 1}},
    {"costs": -1}, {"d_model": float("nan")}, {"tie_slots": 0},
]  # fmt: skip


def test_retraining_a_mutated_architecture_is_one_line(run: Path, said: Said) -> None:
    whole = json.loads((run / "architecture.json").read_text())
    whole |= {"costs": None, "evidence": None}
    path = run / "changed.json"
    before = sorted(run.rglob("*"))
    for change in ARCHITECTURES:
        path.write_text(json.dumps({**whole, **change}))
        line = said(retrain, path, "--architecture", str(path))
        key = next(iter(change))
        assert f"{path}: {key}" in line, line
    for content in wrong_json(json.dumps(whole).encode()):
        path.write_bytes(content)
        said(retrain, path, "--architecture", str(path))
    path.unlink()
    assert sorted(run.rglob("*")) == before


def test_an_architecture_of_terabytes_is_refused_before_memory_is_taken(
    run: Path, said: Said
) -> None:
    whole = json.loads((run / "architecture.json").read_text()) | {"costs": None, "evidence": None}
    path = run / "changed.json"
    dense = {"kind": "dense", "label": "dense", "d_ffn": 24, "activation": "relu"}
    for change in (
        {"d_model": 2**16, "slots": [dense] * 4096},
        {"slots": [{**dense, "d_ffn": 2**20}] * 4096},
        {"slots": [{"kind": "attention", "label": "attention", "n_heads": 2, "d_head": 8,
                    "window": None, "memory": 2**20}] * 4096},
    ):  # fmt: skip
        path.write_text(json.dumps({**whole, **change}))
        assert " GB" in said(retrain, Path("architecture argmax-0"), "--architecture", str(path))
    huge = [part for text in ("slots=4096", "d_model=65536", "d_ffn=1048576") for part in
            ("--set", f"model.{text}")]  # fmt: skip
    other = ["--run", str(run.parent / "other")]
    assert " GB" in said(search, Path("model: "), *huge, *other)
    assert not (run.parent / "other").exists()


def test_a_flipped_bit_in_a_saved_model_is_mended_from_the_best_step(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "retrain/argmax-0/seed-0/model/model.safetensors"
    whole = path.read_bytes()
    raw = bytearray(whole)
    raw[-1] ^= 1
    path.write_bytes(raw)
    assert compare.main([str(run)]) == 0
    assert "its tensors are not those that were saved" in capsys.readouterr().out
    assert path.read_bytes() == whole
