"""Damaged files of a finished run, read by derive, retrain, compare: one line that names them.

Whatever else may be damaged in each file is tested in test_damage.py, without the scripts.
"""

import json
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
from tests.conftest import without_figures, write_experiment
from tests.damage import NO_OBJECTS
from tests.runs import Capture, refused, run, settings
from training.run_dir import record_resume

FOLDER = "retrain/argmax-0/seed-0"
PI = "search/seed-0/pi.npz"
OTHER = "changed.json"
SHORT = settings(
    *("search.steps=8", "search.optimiser.warmup_steps=1", "compare.opponents=[interleaved]"),
    *("retrain.steps=6", "retrain.optimiser.warmup_steps=1", "costs.patience_s=0"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with texts, cache and a finished run of all four phases, made once."""
    root = tmp_path_factory.mktemp("finished")
    with without_figures(root):
        run(search, write_experiment(root), "--run", root / "run", *SHORT)
        for script in (derive, retrain, compare):
            run(script, root / "run")
        whole = json.loads((root / "run/architecture.json").read_text())
        (root / "run" / OTHER).write_text(json.dumps(whole | {"costs": None, "evidence": None}))
        yield root


@pytest.fixture
def folder(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, to be damaged."""
    monkeypatch.setenv("PARNAS_CACHE", str(finished / "cache"))
    return Path(shutil.copytree(finished / "run", tmp_path / "run"))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def merged(**fields: Any) -> Callable[[bytes], bytes]:
    return lambda whole: json.dumps({**json.loads(whole), **fields}).encode()


def half(whole: bytes) -> bytes:
    return whole[: len(whole) // 2]


def no_object(whole: bytes) -> bytes:
    return b"[]"


def unprintable(whole: bytes) -> bytes:
    return b"\x1b[1m" * 9


WIDE = {"kind": "dense", "label": "dense", "d_ffn": 2**20, "activation": "relu"}


@pytest.mark.parametrize(
    ("script", "name", "damage", "said"),
    [
        *((derive, PI, damage, f"{PI}: damaged") for damage in (half, unprintable)),
        *((compare, f"{FOLDER}/result.json", damage, "result.json: ") for damage in (
            half, no_object, merged(steps=0))),
        (retrain, f"{FOLDER}/result.json", no_object,
         "remove it and run retrain.py or compare.py again"),
        *((script, f"{FOLDER}/identity.json", damage, "identity.json: ")
          for script in (retrain, compare) for damage in (half, no_object)),
        (retrain, f"{FOLDER}/identity.json", merged(data=3), f"{FOLDER}: "),
        (retrain, f"{FOLDER}/identity.json", merged(dropout="\x1b[1m" * 1000), f"{FOLDER}: "),
        (retrain, f"{FOLDER}/identity.json", merged(**{"x" * 500: 1}), f"{FOLDER}: "),
        *((retrain, OTHER, damage, f"{OTHER}: ") for damage in (half, no_object)),
        (retrain, OTHER, merged(d_model=10**30), f"{OTHER}: d_model"),
        (retrain, OTHER, merged(name="\x1b[1m"), f"{OTHER}: name"),
        (retrain, OTHER, merged(slots=[WIDE] * 4096), " GB"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line_and_nothing_is_written(
    folder: Path,
    capsys: Capture,
    script: Any,
    name: str,
    damage: Callable[[bytes], bytes],
    said: str,
) -> None:
    path = folder / name
    path.write_bytes(damage(path.read_bytes()))
    before = contents(folder)
    more = ["--architecture", path] if name == OTHER else []
    assert said in refused(script, capsys, folder, *more)
    assert contents(folder) == before


def test_a_search_of_terabytes_is_refused_before_memory_is_taken(
    folder: Path, capsys: Capture
) -> None:
    huge = settings("model.slots=4096", "model.d_model=65536", "model.d_ffn=1048576")
    line = refused(search, capsys, folder, *huge, "--run", folder.parent / "other")
    assert "model: " in line
    assert " GB" in line
    assert not (folder.parent / "other").exists()


def test_a_damaged_environment_ends_no_resume(folder: Path) -> None:
    """No result depends on it; what is not known any more is said."""
    path = folder / FOLDER / "environment.json"
    raw = path.read_bytes()
    for content in (None, *NO_OBJECTS, b'{"resumed": 3}'):
        path.unlink() if content is None else path.write_bytes(content)
        said = record_resume(folder / FOLDER, torch.device("cpu"), 3, {"micro_batches": 1})
        assert said[0].startswith("torch was not recorded, is ")
        assert [entry["step"] for entry in json.loads(path.read_bytes())["resumed"]] == [3]
    path.write_bytes(raw)
    assert record_resume(folder / FOLDER, torch.device("cpu"), 3, {"micro_batches": 1}) == []


def test_a_flipped_bit_in_a_saved_model_is_mended_from_the_best_step(
    folder: Path, capsys: Capture
) -> None:
    path = folder / FOLDER / "model/model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    run(compare, folder)
    assert "its tensors are not those that were saved" in capsys.readouterr().out
    assert path.read_bytes() == whole
