"""The command that goes on with a text: what it prints is what the model draws."""

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data import Tokenizer, load_tokenizer
from data.tokenizers.sentencepiece import load_given
from data.tokenizers.tokenizer import Bytes
from model import Sampling, generate, load_model
from tests.data.models import TEXT, given_model, ranked
from tests.model.tiny import candidate, save_source
from tests.refusal import refused
from tools import generate as command

LONG = "A line that is longer than the memory of five rows.\n" * 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    attention = candidate("attention", memory=5)
    return save_source(tmp_path / "model", attention, candidate("dense"), attention).folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command that succeeds prints on stdout."""
    assert command.main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def stdin(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


def ids_after(folder: Path, prompt: bytes, most: int, seed: int = 0, **options: Any) -> list[int]:
    """What follows the bytes of a document."""
    model, doc = load_model(folder), load_tokenizer(folder).doc_id
    sampling = Sampling(**options)
    return generate(model, [[doc, *prompt]], most, sampling=sampling, seeds=[seed], stop_id=doc)[0]


def text_after(folder: Path, prompt: str, most: int, seed: int = 0, **options: Any) -> str:
    ids = ids_after(folder, prompt.encode(), most, seed, **options)
    return bytes(ids).decode(errors="replace")


def draws(monkeypatch: pytest.MonkeyPatch, ids: Sequence[int], dies_at: int = -1) -> None:
    """The model draws these ids, whatever it is given."""

    def steps(*_: object) -> Iterator[tuple[None, torch.Tensor]]:
        for place, each in enumerate(ids):
            if place == dies_at:
                raise KeyboardInterrupt
            yield None, torch.tensor([each])

    monkeypatch.setattr("model.generation.steps", steps)


SPELT = "na\u00efve \u2014 \u65e5\u672c \U0001f389 \u2581 caf\u00e9\n\tdef fox(self):\n"
TOKENIZERS = {
    "bytes": lambda: Tokenizer(Bytes()),
    "exact": lambda: ranked(load_given(given_model(
        byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, character_coverage=0.98))),
    "lossy": lambda: ranked(load_given(given_model(byte_fallback=True))),
}  # fmt: skip


@pytest.mark.parametrize("name", TOKENIZERS)
def test_what_is_shown_in_pieces_is_the_decoded_whole(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    spelt = tokenizer.encode(SPELT + TEXT).tolist()
    random = np.random.default_rng(0).integers(tokenizer.vocabulary_size, size=(40, 9)).tolist()
    for ids in [spelt, *([*each, *spelt[:5], *each[:2]] for each in random)]:
        pieces = list(command.pieces(tokenizer, ids, len(ids)))
        shown = ids[: ids.index(tokenizer.doc_id)] if tokenizer.doc_id in ids else ids
        assert "".join(pieces) == tokenizer.decode(shown)
        assert "\ufffd" not in "".join(pieces) or ids is not spelt
        assert len(pieces) == min(len(shown) + 1, len(ids))


@pytest.mark.parametrize("prompt", ["", "Where a word", LONG])
def test_the_text_is_what_the_model_draws(
    folder: Path, capsys: pytest.CaptureFixture[str], prompt: str
) -> None:
    options = {"temperature": 0.7, "top_k": 40, "top_p": 0.95}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    found = run(capsys, folder, "--prompt", prompt, *given, "--tokens", 40, "--seed", 3)
    assert found == text_after(folder, prompt, 40, seed=3, **options) + "\n"


def test_a_prompt_comes_from_the_command_line_a_file_or_stdin(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [folder, "--temperature", 0, "--tokens", 9]
    wanted = text_after(folder, LONG, 9, temperature=0) + "\n"
    (tmp_path / "long.txt").write_text(LONG)
    assert run(capsys, *given, "--file", tmp_path / "long.txt") == wanted
    stdin(monkeypatch, LONG.encode())
    assert run(capsys, *given, "--prompt", "-") == wanted
    stdin(monkeypatch, "\ufeffabc".encode())
    for marked in ("-", "\ufeffabc"):
        assert command.prompt_of(command.parse([str(folder), "--prompt", marked])) == "abc"
    (tmp_path / "empty.txt").write_text("")
    assert run(capsys, *given, "--file", tmp_path / "empty.txt") == run(capsys, *given)


def test_samples_read_the_prompt_once_and_are_those_of_the_next_seeds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        command.main([str(folder), "--prompt", LONG, "--num-samples", "3", "--tokens", "20"]) == 0
    )
    printed = capsys.readouterr()
    texts = [text_after(folder, LONG, 20, seed) for seed in range(3)]
    assert printed.out == "".join(f"== seed {i}\n{text}\n" for i, text in enumerate(texts))
    assert len(set(texts)) == 3
    assert f"prompt: {len(LONG) + 1} tokens, " in printed.err.splitlines()[-1]


def test_a_terminal_gets_no_escape_sequence_of_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    draws(monkeypatch, b"\x1b[2Ja\n\tb\r")
    assert run(capsys, folder, "--tokens", 9) == "\x1b[2Ja\n\tb\r\n"
    draws(monkeypatch, b"\x1b[2Ja\n\tb\r")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(capsys, folder, "--tokens", 9) == "\\x1b[2Ja\n\tb\\r\n"


def test_options_that_make_no_sense_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"\xe9t\xe9")
    for name, value, said in (
        ("--temperature", -0.5, "--temperature: must be a number from 0, found -0.5"),
        ("--top-p", 0, "--top-p: must be above 0 and at most 1, found 0.0"),
        ("--device", "gpu", "--device: must be auto, cpu, cuda or cuda:N, found 'gpu'"),
        ("--file", latin, "is not UTF-8, byte 0 is 0xe9"),
    ):
        (line,) = refused(command.main, capsys, folder, name, value).splitlines()
        assert said in line
