"""The user's mistakes: one clear line each, exit code 2, nothing half-written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import compare
import derive
import retrain
import search
from tests.test_pipeline import ROOT


def refused(
    script: Any, capsys: pytest.CaptureFixture[str], *arguments: Any, run: Path
) -> list[str]:
    """The lines on stderr of a command that must fail; nothing may be left in its run folder."""
    before = sorted(run.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        script.main([*map(str, arguments), "--run", str(run)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert sorted(run.rglob("*")) == before
    leftovers = [p for p in run.parent.rglob("*") if p.name.startswith(".") or "tmp" in p.name]
    assert [p for p in leftovers if p.is_file()] == []
    return [line for line in error.splitlines() if not line.startswith("files: ")]


def with_text(experiment_file: Path, split: str, content: bytes | None) -> None:
    path = experiment_file.parent / f"{split}.txt"
    path.unlink()
    if content is not None:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "train.txt: no such file"),
        (b"", "train.txt: "),
        (b"abc\xff\xfe", "byte 3"),
        (b"ab", "streams need at least"),
    ],
)
def test_text_that_does_not_serve(
    experiment_file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: bytes | None,
    said: str,
) -> None:
    with_text(experiment_file, "train", content)
    lines = refused(search, capsys, experiment_file, run=tmp_path / "run")
    assert len(lines) == 1
    assert said in lines[0]


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("content", [None, b"", b"x\xff"])
def test_every_split_is_looked_at_before_anything_starts(
    experiment_file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    split: str,
    content: bytes | None,
) -> None:
    with_text(experiment_file, split, content)
    lines = refused(search, capsys, experiment_file, run=tmp_path / "run")
    assert len(lines) == 1
    assert f"{split}.txt" in lines[0]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.tokenizer={kind: bpe, vocabulary: 30000}", "30000"),
        ("model.n_heads=5", "n_heads: 5 does not divide d_model 16"),
        ("model.softmax.cutoffs=[60, 20]", "strictly increasing, found [60, 20]"),
        ("model.softmax.cutoffs=[20, 20]", "strictly increasing, found [20, 20]"),
        ("model.softmax.cutoffs=[20, 257]", "257 is not below the vocabulary 257"),
        ("model.softmax.factor=0.5", "softmax.factor"),
        ("search.tau.edn=0.1", "did you mean"),
        ("search.estimator=sofd", "did you mean 'soft'"),
        ("data.corpus=filse", "did you mean 'files'"),
        ("run.device=cuda:99", "cuda:99 is not there"),
        ("search.steps=0", "search.steps"),
        ("search.optimiser.warmup_steps=30", "30 must be below steps 30"),
        ("nonsense", "nonsense"),
    ],
)
def test_settings_that_do_not_fit(
    experiment_file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    setting: str,
    said: str,
) -> None:
    lines = refused(search, capsys, experiment_file, "--set", setting, run=tmp_path / "run")
    assert len(lines) == 1
    assert said in lines[0]


def test_d_head_lets_heads_not_divide_the_width(experiment_file: Path) -> None:
    arguments = [str(experiment_file), "--check", "--set", "model.n_heads=5"]
    assert search.main([*arguments, "--set", "model.d_head=4"]) == 0


def architecture(experiment_file: Path, tmp_path: Path) -> dict[str, Any]:
    run = tmp_path / "made"
    arguments = [str(experiment_file), "--run", str(run), "--method", "interleaved"]
    assert derive.main(arguments) == 0
    made: dict[str, Any] = json.loads((run / "architecture.json").read_text())
    return made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a["slots"][2].update(kind="atention"), "slots[2]: kind"),
        (lambda a: a.update(version=7), "version: 7 is unknown; this program reads version 1"),
        (lambda a: a.update(colour="red"), "colour: unknown"),
        (lambda a: a["slots"][1].pop("d_ffn"), "slots[1].d_ffn: missing"),
        (lambda a: a.update(vocabulary_size=99), "(vocabulary 99,"),
        (lambda a: a.update(slots=[]), "slots"),
    ],
)
def test_architectures_that_do_not_fit(
    experiment_file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    change: Any,
    said: str,
) -> None:
    made = architecture(experiment_file, tmp_path)
    made.pop("costs")
    change(made)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(made))
    run = tmp_path / "run"
    lines = refused(retrain, capsys, experiment_file, "--architecture", path, run=run)
    assert said in lines[0]


def test_steps_in_the_wrong_order_say_what_comes_first(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert "run search.py first" in refused(derive, capsys, experiment_file, run=run)[0]
    assert "run derive.py" in refused(retrain, capsys, experiment_file, run=run)[0]
    assert "run derive.py" in refused(compare, capsys, experiment_file, run=run)[0]
    (tmp_path / "empty").mkdir()
    assert "give a YAML file" in refused(search, capsys, tmp_path / "empty", run=run)[0]


def test_a_run_folder_that_is_a_file_is_refused(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        search.main([str(experiment_file), "--run", str(tmp_path / "taken")])
    assert stop.value.code == 2
    assert "taken" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_layout_that_is_no_rule_names_the_rules(
    experiment_file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = [experiment_file, "--layout", "interleavd"]
    lines = refused(retrain, capsys, *arguments, run=tmp_path / "run")
    assert "a rule (argmax, top_k, sampled, beam, evolution, interleaved, par" in lines[0]


def test_a_missing_package_is_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; import search; search.main(['x.yaml'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    expected = "the package torch is missing: run `make setup`, then use .venv/bin/python\n"
    assert done.stderr == expected
