"""A given tokenizer that loses text: it goes with the model, and there are no bits per byte."""

import json
import shutil
from pathlib import Path

import numpy as np

import derive
import retrain
import search
from data import load_tokenizer
from tests.data.models import REPOSITORY_A, given_model
from tests.runs import SEARCH, run, settings


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
