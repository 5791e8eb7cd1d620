"""The user's mistakes: one clear line each, exit code 2, nothing half-written."""

import json
from pathlib import Path
from typing import Any

import pytest

import compare
import derive
import retrain
import search
from tests import runs


def refused(script: Any, capsys: pytest.CaptureFixture[str], *arguments: Any, run: Path) -> str:
    """The line on stderr of a command that must fail; nothing may be left in its run folder."""
    before = sorted(run.rglob("*"))
    line = runs.refused(script, capsys, *arguments, "--run", run)
    assert sorted(run.rglob("*")) == before
    leftovers = [p for p in run.parent.rglob("*") if p.name.startswith(".") or "tmp" in p.name]
    assert [p for p in leftovers if p.is_file()] == []
    return line


@pytest.mark.parametrize(
    ("split", "content", "said"),
    [
        ("train", None, "train.txt: no such file"),
        ("train", b"", "train.txt: "),
        ("train", b"abc\xff\xfe", "byte 3"),
        ("train", b"ab", "streams need at least"),
        *(
            (split, content, f"{split}.txt")
            for split in ("valid", "test")
            for content in (None, b"", b"x\xff")
        ),
    ],
)
def test_every_text_is_looked_at_before_anything_starts(
    experiment_file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    split: str,
    content: bytes | None,
    said: str,
) -> None:
    path = experiment_file.parent / f"{split}.txt"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert said in refused(search, capsys, experiment_file, run=tmp_path / "run")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.tokenizer={kind: bpe, vocabulary: 30000}", "30000"),
        ("model.softmax.cutoffs=[20, 257]", "257 is not below the vocabulary 257"),
        ("run.device=cuda:99", "cuda:99 is not there"),
    ],
)
def test_settings_that_do_not_fit(
    experiment_file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    setting: str,
    said: str,
) -> None:
    assert said in refused(search, capsys, experiment_file, "--set", setting, run=tmp_path / "run")


def test_d_head_lets_heads_not_divide_the_width(experiment_file: Path) -> None:
    arguments = [str(experiment_file), "--check", "--set", "model.n_heads=5"]
    assert search.main([*arguments, "--set", "model.d_head=4"]) == 0


def test_an_architecture_of_another_vocabulary_is_refused(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runs.run(derive, experiment_file, "--run", tmp_path / "made", "--method", "interleaved")
    made = json.loads((tmp_path / "made/architecture.json").read_text())
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({**made, "costs": None, "vocabulary_size": 99}))
    arguments = [experiment_file, "--architecture", path]
    assert "(vocabulary 99," in refused(retrain, capsys, *arguments, run=tmp_path / "run")


def test_steps_in_the_wrong_order_say_what_comes_first(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert "run search.py first" in refused(derive, capsys, experiment_file, run=run)
    assert "run derive.py" in refused(retrain, capsys, experiment_file, run=run)
    assert "run derive.py" in refused(compare, capsys, experiment_file, run=run)
    (tmp_path / "empty").mkdir()
    assert "give a YAML file" in refused(search, capsys, tmp_path / "empty", run=run)


def test_a_run_folder_that_is_a_file_is_refused(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("mine")
    assert "taken" in runs.refused(search, capsys, experiment_file, "--run", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_layout_that_is_no_rule_names_the_rules(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = [experiment_file, "--layout", "interleavd"]
    line = refused(retrain, capsys, *arguments, run=tmp_path / "run")
    assert "a rule (argmax, top_k, sampled, beam, evolution, interleaved, par" in line
