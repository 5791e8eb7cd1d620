"""The command that shows a corpus: its numbers are those of the text, and it prints no rubbish."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.models import REPOSITORY_A, TEXT, given_model
from tests.runs import ROOT
from tools import corpus as command


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert command.main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def cells(text: str, split: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{split} ")]
    return line.split()


def test_the_numbers_are_those_of_the_files(
    experiment_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = experiment_file.parent
    (folder / "valid.txt").write_text("caf\u00e9 " + "x" * 60 + "\n" + "y" * 60 + "\n")
    with (folder / "train.txt").open("a") as file:
        file.write("y" * 60 + "\n")
    text = printed(capsys, experiment_file, "--set", "data.validation_tokens=5")
    size = (folder / "train.txt").stat().st_size
    assert cells(text, "train")[1:5] == ["1", f"{size:,}", f"{size:,}", f"{size + 1:,}"]
    assert cells(text, "valid")[1:6] == ["1", "127", "128", "129", f"{128 / 129:.3f}"]
    assert "also occur in the training text: 1 of 2 in valid" in text
    assert "vocabulary 257\ntokenizer: bytes, lossless" in text
    begins = (folder / "train.txt").read_text()[:30]
    assert f"begins:\n  {begins}" in text


def test_a_lossy_model_is_said_to_be(
    experiment_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = experiment_file.parent / "a.model"
    path.write_bytes(given_model(TEXT + "\u00e9" * 9, **REPOSITORY_A))
    settings = ["--set", f"data.tokenizer={{kind: given, model: {path}}}"]
    text = printed(capsys, experiment_file, *settings, "--set", "model.softmax.cutoffs=[20, 40]")
    assert "tokenizer: given, lossy: characters are normalised; " in text
    assert "; no bits per byte, no word perplexity; share of <unk> tokens: train 0.00%" in text


def test_nothing_that_a_terminal_would_obey_is_printed(
    experiment_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b[31m\ttab\rbell\x07 \u202e\u0085\u200b\ufeff\n\u2028 caf\u00e9\n"
    (experiment_file.parent / "train.txt").write_bytes((hostile * 200).encode())
    text = printed(capsys, experiment_file)
    assert all(character.isprintable() for character in text.replace("\n", ""))
    assert r"\x1b[31m\ttab\rbell\x07 \u202e\x85\u200b\ufeff\n" in text
    assert "caf\u00e9" in text


@pytest.mark.slow
def test_a_pipe_that_knows_ascii_only_gets_escapes(experiment_file: Path) -> None:
    text = experiment_file.parent / "train.txt"
    text.write_text("caf\u00e9 " + text.read_text(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tools.corpus", str(experiment_file)],
        cwd=ROOT, capture_output=True, env={"PYTHONIOENCODING": "ascii", "PATH": "",
        "PARNAS_CACHE": str(experiment_file.parent / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert rb"caf\xe9" in done.stdout
    assert b"encoding train" in done.stderr
    assert b"encoding" not in done.stdout
