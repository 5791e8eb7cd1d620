"""Two hundred mutated architecture files: a ValueError of a few lines, or the same architecture."""

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model import Architecture, load_architecture
from tests.model.test_architecture import architecture

FILE = "architecture.json"
# Too large for any key, of the wrong type for most, or no number at all.
WRONG = [
    None, True, -1, 0.5, 10**30, float("nan"), float("inf"), "", "x" * 5000, "../x", "/etc/x",
    "a\n", "\x1b[1m", "\ud800", [], [[]], {}, {"a": 1}, [1] * 70, "\u202e",
]  # fmt: skip
# Keys whose value is free text or may be left out.
FREE = {("provenance", "run"), ("provenance", "wort"), ("tokenizer", "digest")}


def leaves(value: Any, key: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in the JSON, from the outside in."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in inner:
        yield (*key, name)
        if isinstance(part, dict | list):
            yield from leaves(part, (*key, name))


def changed(value: Any, key: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    value = copy.deepcopy(value)
    here = value
    for part in key[:-1]:
        here = here[part]
    here[key[-1]] = new
    return value


def with_wrong_values() -> Iterator[tuple[str, str]]:
    """The text, and a part of the path that must be named."""
    draw = random.Random(0)
    whole = json.loads(architecture().to_json())
    for key in leaves(whole):
        if key[:2] in FREE or key[:2] == ("evidence", "pi"):
            continue
        fine = {("slots", 0, "window"), ("costs",), ("evidence",), ("softmax", "sizes"),
                ("tie_slots",), ("evidence", "margins"), ("provenance",), ("softmax", "factor"),
                ("slots", 4, "window"), ("slots", 0, "memory")}  # fmt: skip
        for new in draw.sample(WRONG, 4):
            if (key in fine and new in (None, [], {})) or (isinstance(new, float) and key[0] in (
                "costs", "evidence"
            )):  # fmt: skip
                continue
            if key[-1] == "method" and isinstance(new, str) and len(new) < 200:
                continue
            if key[-1] in ("tied",) and isinstance(new, bool):
                continue
            yield json.dumps(changed(whole, key, new)), str(key[0])


def refusal(path: Path) -> str:
    with pytest.raises(ValueError, match=FILE) as caught:
        load_architecture(path)
    assert type(caught.value) is ValueError
    return str(caught.value)


def test_wrong_values_are_refused_by_their_path(tmp_path: Path) -> None:
    path = tmp_path / FILE
    mutants = list(with_wrong_values())
    assert len(mutants) > 150
    for text, named in mutants:
        path.write_text(text)
        lines = refusal(path).splitlines()
        assert len(lines) <= 21, lines
        assert all(line.startswith(f"{path}: ") and len(line) < 600 for line in lines), lines
        said = [line.removeprefix(f"{path}: ") for line in lines]
        torn = "\\ud800" in text and said[0].startswith("not JSON that can be read")
        assert torn or any(named in line for line in said), (named, lines)


def test_removed_and_added_and_repeated_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    text = architecture().to_json()
    whole = json.loads(text)
    for key in leaves(whole):
        if isinstance(key[-1], int) or key[0] in ("provenance", "evidence", "costs"):
            continue
        name = key[-1]
        parent = whole
        for part in key[:-1]:
            parent = parent[part]
        without = changed(whole, key, None)
        here = without
        for part in key[:-1]:
            here = here[part]
        del here[name]
        if name not in ("factor", "sizes", "tied", "cutoffs", "tie_slots"):
            path.write_text(json.dumps(without))
            assert f"{name}" in refusal(path)
        path.write_text(json.dumps(changed(whole, (*key[:-1], f"{name}x"), 1)))
        assert f"{name}x: unknown key" in refusal(path)
        spelled = json.dumps(name)
        path.write_text(text.replace(f"{spelled}:", f"{spelled}: 3, {spelled}:", 1))
        assert f"{name}: stands more than once" in refusal(path)


def test_broken_bytes_are_refused_or_change_nothing_unseen(tmp_path: Path) -> None:
    path = tmp_path / FILE
    made = architecture()
    raw = made.to_json().encode()
    draw, loaded = random.Random(1), 0
    for _ in range(120):
        broken = bytearray(raw)
        place = draw.randrange(len(raw))
        match draw.choice(("flip", "cut", "out", "in")):
            case "flip":
                broken[place] ^= 1 << draw.randrange(8)
            case "cut":
                del broken[place:]
            case "out":
                del broken[place : place + draw.choice((1, 5, 40))]
            case "in":
                broken[place:place] = bytes([draw.choice(b'\xff\0{}[]",:0')])
        path.write_bytes(broken)
        found = said = None
        try:
            found = load_architecture(path)
        except ValueError as error:
            said = str(error)
        # Another value in range, that is all: what is read is what stands there.
        assert (said or "").startswith(f"{path}: ") or found
        if found:
            loaded += 1
            assert json.loads(found.to_json()) == json.loads(broken)
    assert loaded < 60


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        '{"version": 1, "slots": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001,
        '{"version": ' + "9" * 100_000 + "}",
        '{"version": NaN}',
        '{"version": 1e999}',
        "null", "3", '"text"', "[]", "\ufeff{}", '{"version": 1}x',
        '{"version": 1, "a\\u001b[1m": 2}',
        '{"version": 1, "\\ud800": 2}',
    ],
    ids=range(13),
)  # fmt: skip
def test_texts_that_are_no_architecture_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert len(refusal(tmp_path / FILE)) < 3000


def test_a_million_different_keys_are_refused_at_once(tmp_path: Path) -> None:
    text = '{"version": 1, ' + ", ".join(f'"k{i}": 1' for i in range(200_000)) + "}"
    (tmp_path / FILE).write_text(text)
    lines = refusal(tmp_path / FILE).splitlines()
    assert lines[-1].endswith("more problems")
    assert len(lines) == 21


def test_what_is_no_file_is_refused_and_waited_for_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / FILE
    os.mkfifo(path)
    refusal(path)
    path.unlink()
    path.mkdir()
    refusal(path)
    path.rmdir()
    path.symlink_to("/dev/zero")
    refusal(path)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(OSError, match=FILE):
        load_architecture(path)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(architecture().to_json())
    (tmp_path / FILE).symlink_to("real")
    assert load_architecture(tmp_path / FILE) == architecture()
    assert isinstance(load_architecture(tmp_path / FILE), Architecture)
