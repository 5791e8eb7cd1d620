"""The command that measures a saved model: what it prints is right, and what it refuses."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import retrain
from data import Tokenizer, encode_documents, load_tokenizer
from data.tokenizers.tokenizer import Bytes
from model import LanguageModel, load_model
from model.state import Segment
from tests.model.test_attention import one_by_one
from tests.model.tiny import candidate, save_source
from tests.refusal import refused
from tools import evaluate as command

TEXT = "Where a word stands,\nthere stands a word.  \n\nCaf\u00e9 \u2014 na\u00efve words\nend here"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    attention, dense = candidate("attention", memory=5), candidate("dense")
    return save_source(tmp_path / "model", attention, dense, attention).folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


@dataclass
class Tool:
    """Runs the command and reads what it prints and writes."""

    capsys: pytest.CaptureFixture[str]
    place: Path
    folder: Path
    text: Path

    def line(self, arguments: Sequence[Any]) -> list[str]:
        """The command line, with the model folder and the text where others are not given."""
        start = [] if "--data" in arguments else [self.folder, "--data", self.text]
        return [*map(str, [*start, *arguments])]

    def output(self, *arguments: Any) -> str:
        assert command.main(self.line(arguments)) == 0
        printed = self.capsys.readouterr()
        assert printed.err == ""
        return printed.out

    def table(self, *arguments: Any) -> list[list[str]]:
        """The cells below the titles."""
        lines = self.output(*arguments).split("\n\n")[1].splitlines()
        assert len({len(line) for line in lines}) == 1
        return [line.split() for line in lines[1:]]

    def rows(self, *arguments: Any) -> list[Any]:
        """The rows of the JSON file, in all digits, which must be those of the table."""
        out = self.place / "out.json"
        out.unlink(missing_ok=True)
        cells = self.table(*arguments, "--json", out)
        rows = json.loads(out.read_text())["rows"]
        names = ("nats_per_token", "perplexity", "bits_per_byte", "word_perplexity")
        for row, (_, *shown) in zip(rows, cells, strict=True):
            wanted = [row[name] for name in names if name in row]
            assert [float(cell) for cell in shown] == pytest.approx(wanted, rel=1e-3, abs=5e-3)
        return list(rows)

    def refusal(self, *arguments: Any) -> str:
        """The line of a command that must fail before it writes anything."""
        before = sorted(self.place.rglob("*"))
        said = refused(command.main, self.capsys, *self.line(arguments))
        assert sorted(self.place.rglob("*")) == before
        return said.splitlines()[-1]


@pytest.fixture
def tool(folder: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys, tmp_path, folder, text)


def one_token_at_a_time(
    model: LanguageModel, ids: list[int], *, segment: int, memory: int, context: int, streams: int
) -> float:
    """Total nats by the formulas, every token on its own; what each slot was given is kept."""
    scored, total = len(ids) - 1, 0.0
    for b in range(streams):
        first, end = (1 + (b + k) * scored // streams for k in (0, 1))
        start = max(first - 1 - context, 0)
        given: list[list[torch.Tensor]] = [[] for _ in model.slots]
        for n in range(start, end - 1):
            h_1D = model.tables.embed(torch.tensor([[ids[n]]]))[0]
            begin = (n - start) // segment * segment - memory
            for inputs, slot in zip(given, model.slots, strict=True):
                (label,) = slot.labels
                inputs.append(h_1D)
                block: Any = slot.block(label)
                if label == "attention":
                    c_1SD = slot.norms[label](torch.cat(inputs[max(begin, 0) :])[None])
                    valid_1M = torch.ones(1, c_1SD.shape[1] - 1, dtype=torch.bool)
                    delta = one_by_one(block, c_1SD, valid_1M)
                else:
                    c_1SD = slot.norms[label](h_1D[None])
                    delta = block(c_1SD, Segment(torch.zeros(1), 1), None)[0]
                h_1D = h_1D + delta[0]
            if n + 1 >= first:
                log_p = model.log_prob(model.norm(h_1D)[None])[0, 0]
                total -= float(log_p[ids[n + 1]])
    return total


@pytest.mark.parametrize(
    ("cut", "options"),
    [
        ({"streams": 1, "segment": 1, "context": 0}, {}),
        ({"streams": 3, "segment": 4, "context": 5}, {}),
        ({"streams": 2, "segment": 3, "context": 4}, {"window": 4, "clamp": 2}),
    ],
)
@torch.no_grad()
def test_the_table_is_that_of_one_token_at_a_time(
    tool: Tool, folder: Path, cut: dict[str, int], options: dict[str, int]
) -> None:
    memories = (0, 3, 8)
    given = [f"--{name}={value}" for name, value in {**cut, **options}.items()]
    found = tool.rows(*given, "--precision", "float64",
        "--memory", *memories,
    )  # fmt: skip
    ids = encode_documents(load_tokenizer(folder), [TEXT]).tolist()
    for memory, row in zip(memories, found, strict=True):
        model = load_model(folder, {"memory": memory, **options}).double()
        wanted = one_token_at_a_time(model, ids, memory=memory, **cut)
        assert row["nats"] == pytest.approx(wanted, rel=1e-12)
        assert row["tokens"] == row["bytes"] == len(TEXT.encode())
        assert row["nats_per_token"] == pytest.approx(wanted / row["tokens"], rel=1e-12)
        assert row["options"]["attention"] == {"window": None, "clamp": None, "memory": memory,
                                               **options}  # fmt: skip
    assert len({round(row["nats"], 6) for row in found}) == (2 if "window" in options else 3)


def test_word_perplexity_is_over_words_and_says_which(tool: Tool) -> None:
    words = len(TEXT.split()) + TEXT.count("\n")
    (row,) = tool.rows()
    assert row["words"] == words
    assert row["word_perplexity"] == pytest.approx(math.exp(row["nats"] / words))
    exponent = row["tokens"] / words
    assert row["word_perplexity"] == pytest.approx(row["perplexity"] ** exponent)
    bits = row["bits_per_byte"] * row["bytes"]
    assert bits == pytest.approx(row["nats"] / math.log(2))
    assert f"{words} words ({command.WORDS})" in tool.output()


def test_what_it_was_measured_with_is_written(tool: Tool, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    tool.output("--memory", 0, 9, "--streams", 3, "--segment", 8, "--context", 2, "--json", out,
        "--precision", "bfloat16",
    )  # fmt: skip
    content = json.loads(out.read_text())
    assert content["trained_with"] == {"attention": {"window": None, "memory": 5, "clamp": None}}
    assert [content[name] for name in ("streams", "segment", "context")] == [3, 8, 2]
    assert [content[name] for name in ("device", "precision")] == ["cpu", "bfloat16"]
    assert content["data"] == [str(text)]


@pytest.fixture
def retrained(experiment_file: Path, tmp_path: Path) -> Path:
    run = tmp_path / "run"
    arguments = [experiment_file, "--run", run, "--layout", "a d a d", "--set", "retrain.steps=12"]
    arguments += ["--set", "data.context_tokens=3", "--set", "data.evaluation_segment=11"]
    assert retrain.main([*map(str, arguments)]) == 0
    return run / "retrain/layout-adad/seed-0"


def test_the_test_text_gives_the_figure_of_the_result(
    tool: Tool, retrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads((retrained / "result.json").read_text())
    capsys.readouterr()
    model = retrained / "model"
    for split in ("valid", "test"):
        (row,) = tool.rows(model, "--data", tmp_path / f"{split}.txt")
        assert row["nats_per_token"] == pytest.approx(result[split]["nats_per_token"], abs=1e-9)
        for name in ("tokens", "bytes"):
            assert row[name] == result[split][name]
    shutil.copytree(model, tmp_path / "carried")
    given = [tmp_path / "carried", "--data", tmp_path / "test.txt"]
    (row,) = tool.rows(*given)
    assert abs(row["nats_per_token"] - result["test"]["nats_per_token"]) > 1e-9
    (row,) = tool.rows(*given, "--streams", 7, "--segment", 11, "--context", 3)
    assert row["nats_per_token"] == pytest.approx(result["test"]["nats_per_token"], abs=1e-9)
    shutil.copy(retrained / "result.json", tmp_path / "carried")
    assert tool.rows(*given) == [row]
    short = tmp_path / "short.txt"
    short.write_text((tmp_path / "valid.txt").read_text()[:150])
    (row,) = tool.rows(model, "--data", short)
    least = min(result[split]["tokens"] for split in ("valid", "test"))
    assert (streams := row["tokens"] * 7 // least) < 7
    assert row["tokens"] > 7
    assert [row] == tool.rows(model, "--data", short, "--streams", max(1, streams))


def test_options_that_make_no_sense_are_refused(tool: Tool, tmp_path: Path) -> None:
    said = tool.refusal("--window", 0)
    assert "--window: Input should be greater than or equal to 1" in said
    assert "--device: cuda:99 is not there" in tool.refusal("--device", "cuda:99")
    for there in (tmp_path, Path(__file__)):
        assert "must be a new file in an existing folder" in tool.refusal("--json", there)


def test_a_text_that_does_not_serve_is_refused(tool: Tool, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    assert tool.refusal(other).startswith(f"{other}: No such file")
    other.write_bytes(b"ok \xff")
    assert tool.refusal(other).startswith(f"{other}: is not UTF-8, byte 3 is 0xff")
    assert "directory" in tool.refusal(folder, "--data", tmp_path)


@pytest.mark.parametrize("name", ["architecture.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_a_file_or_holds_a_damaged_one_is_refused(
    tool: Tool, folder: Path, name: str
) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:40])
    assert name in tool.refusal()
    (folder / name).unlink()
    line = tool.refusal()
    assert f"{folder}: not a model folder ({name} not found); give RUN/model or" in line


def test_a_tokenizer_of_another_model_is_refused(tool: Tool, folder: Path) -> None:
    Tokenizer(Bytes(), [*range(1, 257), 0]).save(folder)
    assert "is not the one that the model was trained with" in tool.refusal()


def test_a_model_without_memory_takes_none(tool: Tool, tmp_path: Path, text: Path) -> None:
    made = save_source(tmp_path / "made", candidate("dense"), candidate("identity")).folder
    line = tool.refusal(made, "--data", text, "--memory", 3)
    assert line == "--memory: no block of made (layout d i) has it"
    assert tool.table(made, "--data", text)[0][0] == "-"
