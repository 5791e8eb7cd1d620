"""A tokenizer that loses text: said on screen, and no bits per byte from search to comparison."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import compare
import derive
import retrain
import search
from data import load_tokenizer
from report.run_files import read_json
from tests.data.models import REPOSITORY_A, given_model
from tests.runs import SEARCH, rows, run, settings

LOWER = "data.tokenizer={kind: bpe, vocabulary: 300, lower_case: true}"


@pytest.fixture(autouse=True)
def _without_figures_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("report.searches.write_search_figures", lambda folder: [])


@pytest.mark.figures
@pytest.mark.slow
def test_lower_casing_switches_bits_per_byte_off_everywhere(
    experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "valid", "test"):
        path = tmp_path / f"{name}.txt"
        path.write_text(path.read_text().title())
    folder = tmp_path / "run"
    run(search, experiment_file, "--run", folder, "--set", LOWER)
    for script in (derive, retrain, compare):
        run(script, folder)
    screen = capsys.readouterr().out
    said = "tokenizer: bpe, lossy: text is lower-cased; bits per byte, word perplexity: none"
    assert said in screen
    assert said in (folder / "search/seed-0/train.log").read_text()
    assert "perplexity" in screen
    assert "bits/byte" not in screen
    for phase in ("search/seed-0", "retrain/argmax-0/seed-0"):
        valid = [row for row in rows(folder / phase / "metrics.jsonl") if row["kind"] == "valid"]
        assert valid
        assert all(row["bits_per_byte"] is None and row["bytes"] is None for row in valid)
        assert all(row["perplexity"] > 1 for row in valid)
    result = read_json(folder / "retrain/argmax-0/seed-0/result.json")
    assert result["test"]["bits_per_byte"] is None
    with (folder / "comparison.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {row["bits_per_byte"] for row in table} == {""}
    assert all(float(row["perplexity"]) > 1 for row in table)
    shown = [line for line in screen.splitlines() if line.startswith("argmax-0  ")]
    heads = next(line for line in screen.splitlines() if line.startswith("name  ")).split()
    assert shown[-1].split()[heads.index("bits")] == "-"
    page = (folder / "report.html").read_text()
    assert "Test nats per token against " in page
    tokenizer = load_tokenizer(folder / "model")
    assert tokenizer.decode(tokenizer.encode("Kan SEL.")) == "kan sel."


def test_a_given_model_may_move_and_is_carried_along(experiment_file: Path, tmp_path: Path) -> None:
    own, moved, folder = tmp_path / "a.model", tmp_path / "b.model", tmp_path / "run"
    own.write_bytes(given_model((tmp_path / "train.txt").read_text(), **REPOSITORY_A))
    arguments = [experiment_file, "--run", folder, *settings("model.softmax.cutoffs=[20, 40]")]
    given = "data.tokenizer={{kind: given, model: {}}}"
    run(search, *arguments, *settings(given.format(own)))
    before = (folder / SEARCH / "identity.json").read_bytes()
    assert b".model" not in before
    shutil.move(own, moved)
    run(search, *arguments, *settings(given.format(moved)))
    assert (folder / SEARCH / "identity.json").read_bytes() == before
    for script in (derive, retrain):
        run(script, folder, *settings(f"data.tokenizer.model={moved}"))
    (cached,) = (tmp_path / "cache").iterdir()
    ids = np.fromfile(cached / "test.bin", dtype=np.uint16)
    shutil.rmtree(tmp_path / "cache")
    moved.unlink()
    tokenizer = load_tokenizer(folder / "model")
    assert np.array_equal(tokenizer.encode((tmp_path / "test.txt").read_text()), ids[1:])
    assert json.loads((folder / "model/result.json").read_text())["test"]["bits_per_byte"] is None
