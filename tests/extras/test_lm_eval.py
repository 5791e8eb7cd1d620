"""The lm_eval adapter: a local task, offline, agrees with tools.evaluate."""

import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_eval.api.instance import Instance

from data import Tokenizer, load_tokenizer
from data.tokenizers.tokenizer import Bytes
from export.lm_eval import ParnasLM
from model import Sampling, generate, load_model
from pipeline.run_files import read_model_folder
from tests.model.tiny import candidate, save_source
from tests.refusal import refused
from tools import lm_eval as command
from tools.evaluate import read_documents, score

ROLLING = """\
task: ROLLING
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/texts.jsonl}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: bits_per_byte
  - metric: byte_perplexity
"""
CHOICE = """\
task: CHOICE
dataset_path: json
dataset_kwargs: {data_files: {test: FOLDER/questions.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
"""


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    # It seeds the generators of the process, and draws from one.
    monkeypatch.setattr(np.random, "seed", lambda seed: None)
    before = random.getstate()
    yield
    random.setstate(before)


def write_tasks(folder: Path, texts: Sequence[str], questions: Sequence[Any] = ()) -> Path:
    tasks = folder / "tasks"
    tasks.mkdir()
    for name, documents in {"texts": [{"text": t} for t in texts], "questions": questions}.items():
        lines = "".join(json.dumps(document) + "\n" for document in documents)
        (folder / f"{name}.jsonl").write_text(lines)
    for name, task in {"rolling": ROLLING, "choice": CHOICE}.items():
        named = task.replace(name.upper(), f"parnas_{name}")
        (tasks / f"{name}.yaml").write_text(named.replace("FOLDER", str(folder)))
    return tasks


def run(model: Path, tasks: Path, *arguments: object, name: str = "parnas_rolling") -> Any:
    out = tasks.parent / "out.json"
    out.unlink(missing_ok=True)
    given = [model, "--tasks", name, "--include-path", tasks, "--json", out, *arguments]
    assert command.main([*map(str, given)]) == 0
    return json.loads(out.read_text())["results"][name]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    attention = candidate("attention", memory=5)
    return save_source(tmp_path / "model", attention, candidate("dense"), attention).folder


def test_documents_are_independent_and_score_as_in_an_evaluation(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["the first\ndocument", "another one, and longer", "z"]
    tasks = write_tasks(tmp_path, texts)
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    files = [tmp_path / f"{number}.txt" for number in range(3)]
    saved = read_model_folder(folder)

    def nats(*paths: Path, streams: int) -> float:
        cut = saved.cut | {"streams": streams}
        text = read_documents(paths, saved)
        return score(saved, {}, text, cut, torch.device("cpu"), "float32").nats

    size = math.log(2) * sum(map(len, texts))
    alone = sum(nats(path, streams=1) for path in files) / size
    assert run(folder, tasks)["bits_per_byte,none"] == pytest.approx(alone, rel=1e-5)
    assert re.search(rf"bits_per_byte +{alone:.4f}", capsys.readouterr().out)
    assert run(folder, tasks, "--limit", 1)["bits_per_byte,none"] == pytest.approx(
        nats(files[0], streams=1) / (math.log(2) * len(texts[0])), rel=1e-5
    )


def requests(kind: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    return [Instance(kind, {}, each, place) for place, each in enumerate(arguments)]


def adapter(folder: Path, batch: int = 3) -> ParnasLM:
    return ParnasLM(load_model(folder), load_tokenizer(folder), 8, batch=batch, seed=4)


def test_generated_text_stops_where_the_task_says(folder: Path) -> None:
    model, doc = load_model(folder), load_tokenizer(folder).doc_id
    contexts = ["one", "a longer context than the memory", "", "two"]
    draws = {"do_sample": True, "temperature": 0.9, "max_gen_toks": 12, "until": []}
    asked = [(context, draws) for context in contexts]
    free = adapter(folder).generate_until(requests("generate_until", asked))
    for place, (context, text) in enumerate(zip(contexts, free, strict=True)):
        (ids,) = generate(model, [[doc, *context.encode()]], 12, stop_id=doc, seeds=[4 + place],
                          sampling=Sampling(temperature=0.9))  # fmt: skip
        assert text == bytes(ids).decode(errors="replace")
    assert adapter(folder, batch=1).generate_until(requests("generate_until", asked)) == free
    end = free[1][4]
    stopped = [(context, draws | {"until": [end, free[0][:2]]}) for context in contexts]
    found = adapter(folder).generate_until(requests("generate_until", stopped))
    assert found[0] == ""
    assert found[1] == free[1][: free[1].index(end)]
    greedy = [("one", {"until": "never", "max_gen_toks": 5})]
    (ids,) = generate(model, [[doc, *b"one"]], 5, stop_id=doc)
    assert adapter(folder).generate_until(requests("generate_until", greedy)) == [
        bytes(ids).decode(errors="replace")
    ]


def test_mistakes_are_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    tasks = write_tasks(tmp_path, ["x"])
    for given, said in (
        (["--tasks", "no_such_task"], "--tasks: no_such_task: not known among"),
        (["--tasks", "a", "--include-path", tmp_path / "absent"], "not a folder"),
        (["--tasks", "a", "--json", tmp_path], "must be a new file in an existing folder"),
    ):
        line = refused(command.main, capsys, folder, *given)
        assert said in line
        assert len(line.splitlines()) == 1
    (tmp_path / "texts.jsonl").unlink()
    line = refused(
        command.main, capsys, folder, "--tasks", "parnas_rolling", "--include-path", tasks
    )
    assert "texts.jsonl" in line
    Tokenizer(Bytes(), [*range(1, 257), 0]).save(folder)
    assert "257 ids) is not the one that the model" in refused(
        command.main, capsys, folder, "--tasks", "a"
    )
