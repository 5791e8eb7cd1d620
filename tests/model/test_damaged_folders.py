"""A hundred and more damaged model folders: a ValueError or OSError that names a file, no model."""

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import model.saving
from model import LanguageModel, load_model, save_model
from tests.damage import no_files
from tests.model.test_saving import edit, outputs, pair

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path, *pair(dtype=torch.float32, cutoffs=(5, 11)))
    return tmp_path


def refusal(folder: Path) -> str:
    """What is said of a damaged folder; nothing but these two kinds of error may come."""
    with pytest.raises((ValueError, OSError)) as caught:
        load_model(folder)
    assert type(caught.value) is ValueError or isinstance(caught.value, OSError)
    text = str(caught.value)
    assert WEIGHTS in text or "architecture.json" in text
    assert len(text) < 4000
    return text


def header_of(raw: bytes) -> tuple[dict[str, Any], bytes]:
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def with_header(header: Any, data: bytes) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_every_flipped_bit_of_the_weights_is_seen(folder: Path) -> None:
    path = folder / WEIGHTS
    raw = path.read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    draw = random.Random(0)
    for place in [start, len(raw) - 1, *(draw.randrange(start, len(raw)) for _ in range(60))]:
        broken = bytearray(raw)
        broken[place] ^= 1 << draw.randrange(8)
        path.write_bytes(broken)
        assert "damaged" in refusal(folder)
    path.write_bytes(raw)
    load_model(folder)


def test_every_flipped_bit_of_the_header_is_seen(folder: Path) -> None:
    path = folder / WEIGHTS
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    draw = random.Random(1)
    for place in [*range(8), *(draw.randrange(8, 8 + size) for _ in range(120))]:
        broken = bytearray(raw)
        broken[place] ^= 1 << draw.randrange(8)
        path.write_bytes(broken)
        if (broken_header := bytes(broken[8 : 8 + size]).strip()) != raw[8 : 8 + size].strip():
            assert broken_header
            refusal(folder)


def test_cut_files_are_refused(folder: Path) -> None:
    for name in (WEIGHTS, "architecture.json"):
        raw = (folder / name).read_bytes()
        for keep in (0, 1, 7, 8, 9, 300, len(raw) // 2, len(raw) - 3):
            (folder / name).write_bytes(raw[:keep])
            assert name in refusal(folder)
        (folder / name).write_bytes(raw)


def headers(header: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Headers that lie."""
    first = next(name for name in header if name != "__metadata__")

    def other(**fields: Any) -> dict[str, Any]:
        return {**header, first: {**header[first], **fields}}

    begin, end = header[first]["data_offsets"]
    yield "10^15 numbers", other(shape=[10**15])
    yield "numbers beyond the file", other(shape=[10**15], data_offsets=[begin, begin + 4 * 10**15])
    yield "overflow", other(shape=[2**63, 2**63])
    yield "negative", other(shape=[-1])
    yield "offsets turned", other(data_offsets=[end, begin])
    yield "offsets of text", other(data_offsets=["a", "b"])
    yield "unknown type", other(dtype="F31")
    yield "whole numbers", other(dtype="I32")
    yield "missing", {name: value for name, value in header.items() if name != first}
    yield "renamed", {("x" if name == first else name): value for name, value in header.items()}
    yield "no tensors", {"__metadata__": header["__metadata__"]}
    yield "metadata of numbers", {**header, "__metadata__": {"parnas": 3}}
    for text in ("", "{", "[]", '"x"', "3", "{}", '{"architecture": 3}', "[" * 10**5, "\ud800"):
        yield f"metadata {text[:9]!r}", {**header, "__metadata__": {"parnas": text}}
    yield "no metadata", {name: value for name, value in header.items() if name[0] != "_"}
    yield "deep", '{"a": ' * 10**5
    yield "a list", "[]"
    yield "bytes", '{"\\ud800": 1}'
    twice = json.dumps(header)
    yield "a name twice", twice[:-1] + ", " + json.dumps({first: header[first]})[1:]


def test_headers_that_lie_are_refused_before_memory_is_taken(folder: Path) -> None:
    path = folder / WEIGHTS
    header, data = header_of(path.read_bytes())
    found = list(headers(header))
    assert len(found) > 25
    for name, lie in found:
        path.write_bytes(with_header(lie, data))
        if name == "a name twice":
            continue  # the same entry again changes nothing
        assert WEIGHTS in refusal(folder), name
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    refusal(folder)


def test_tensors_missing_or_added_or_changed_are_refused(folder: Path) -> None:
    path = folder / WEIGHTS
    tensors = load_file(path)
    metadata = header_of(path.read_bytes())[0]["__metadata__"]
    for name in tensors:
        other = {key: value for key, value in tensors.items() if key != name}
        save_file(other, path, metadata)
        assert f"{name}: missing" in refusal(folder)
        save_file({**tensors, f"{name}x": tensors[name].clone()}, path, metadata)
        assert f"{name}x: no such tensor" in refusal(folder)
        save_file({**tensors, name: tensors[name][None].clone()}, path, metadata)
        assert f"{name}: shape" in refusal(folder)
        save_file({**tensors, name: tensors[name].half()}, path, metadata)
        assert ": type F" in refusal(folder)
        save_file({**tensors, name: tensors[name] + 1}, path, metadata)
        assert "damaged, its tensors are not those that were saved" in refusal(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_neither_saved_nor_loaded(folder: Path, value: float) -> None:
    model_, architecture = pair(cutoffs=(5, 11))
    path = folder / WEIGHTS
    tensors = load_file(path)
    tensors["norm.bias"][1] = value
    save_file(tensors, path, {"architecture_sha256": old_digest(path.parent)})
    assert "norm.bias: holds nan or inf" in refusal(folder)
    model_.norm.bias.data[0] = value
    with pytest.raises(ValueError, match=r"model: norm\.bias: holds nan or inf"):
        save_model(folder, model_, architecture)


def old_digest(folder: Path) -> str:
    return model.saving._digest(model.saving.load_architecture(folder / "architecture.json"))


def test_a_file_without_a_digest_of_its_tensors_still_loads(folder: Path) -> None:
    path = folder / WEIGHTS
    before = outputs(load_model(folder))
    save_file(load_file(path), path, {"architecture_sha256": old_digest(folder)})
    assert torch.equal(outputs(load_model(folder)), before)
    save_file(load_file(path), path, {"architecture_sha256": "0" * 64})
    assert "another architecture.json" in refusal(folder)


@pytest.mark.parametrize("name", [WEIGHTS, "architecture.json"])
def test_what_is_no_file_is_refused_and_waited_for_by_nobody(folder: Path, name: str) -> None:
    for _ in no_files(folder / name):
        refusal(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.update(d_model=2**16, vocabulary_size=2**24, softmax={}),
        lambda v: v.update(d_model=2**16, slots=v["slots"] * 1024),
        lambda v: v["slots"][1].update(d_ffn=2**20),
        lambda v: v["slots"][0].update(n_heads=4096, d_head=2**16),
        lambda v: v["softmax"].update(cutoffs=list(range(1, 23))[:20], factor=1024),
        lambda v: v["softmax"].update(cutoffs=[5, 11], factor=1e308),
        lambda v: v["softmax"].update(cutoffs=[5, 11], sizes=[2**16, 2**16]),
    ],
)
def test_an_architecture_of_terabytes_builds_nothing(
    folder: Path, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*arguments: Any) -> LanguageModel:
        raise AssertionError("built")

    monkeypatch.setattr(model.saving, "build_model", build)
    edit(folder, change)
    refusal(folder)


def test_a_refused_folder_gives_no_model_and_leaves_none_half_read(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    raw = bytearray(before[WEIGHTS])
    raw[-1] ^= 1
    (folder / WEIGHTS).write_bytes(raw)
    refusal(folder)
    assert (folder / WEIGHTS).read_bytes() == bytes(raw)
    assert sorted(path.name for path in folder.iterdir()) == sorted(before)
