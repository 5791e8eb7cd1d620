"""Files of runs for the battery of damages: architectures, tokenizers, trajectories, results."""

import copy
import io
import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from model import load_architecture
from nas.search.trajectory import load_pi
from pipeline.run_files import read_result
from tests.damage import Kind, changed_objects, no_objects, says_what_is_read
from tests.model.test_architecture import architecture
from utils.files import READ_ERRORS
from utils.pi import PEAK_LRS

# --- architecture.json ----------------------------------------------------------------------------

# Too large for any key, of the wrong type for most, or no number at all.
WRONG = [
    None, True, -1, 0.5, 2**100, float("nan"), float("inf"), "", "x" * 5000, "../x", "/etc/x",
    "a\n", "\x1b[1m", "\ud800", [], [[]], {}, {"a": 1}, [1] * 70, "\u202e",
]  # fmt: skip
MAY_BE_LEFT_OUT = {"factor", "sizes", "tied", "cutoffs", "tie_slots"}
NO_ARCHITECTURES = (
    '{"version": 1, "slots": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001,
    '{"version": ' + "9" * 100_000 + "}",
    '{"version": NaN}',
    '{"version": 1e999}',
    '{"version": 1, "a\\u001b[1m": 2}',
    '{"version": 1, "\\ud800": 2}',
)


def leaves(value: Any, key: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in the JSON, from the outside in."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in inner:
        yield (*key, name)
        if isinstance(part, dict | list):
            yield from leaves(part, (*key, name))


def changed(value: Any, key: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place; Ellipsis takes the key out."""
    value = copy.deepcopy(value)
    here = value
    for part in key[:-1]:
        here = here[part]
    if new is ...:
        del here[key[-1]]
    else:
        here[key[-1]] = new
    return value


def architecture_lies(path: Path) -> Iterator[str | None]:
    yield from no_objects_after_whole(path)
    for text in NO_ARCHITECTURES:
        path.write_text(text)
        yield ""
    path.write_text('{"version": 1, ' + ", ".join(f'"k{i}": 1' for i in range(200_000)) + "}")
    yield "more problems$"
    text, draw = architecture().to_json(), random.Random(0)
    whole = json.loads(text)
    for key in leaves(whole):
        for new in draw.sample(WRONG, 4):
            path.write_text(json.dumps(changed(whole, key, new)))
            yield None
    for key in leaves(whole):
        *above, name = key
        if isinstance(name, int) or key[0] in ("provenance", "evidence", "costs"):
            continue
        if name not in MAY_BE_LEFT_OUT:
            path.write_text(json.dumps(changed(whole, key, ...)))
            yield name
        path.write_text(json.dumps(changed(whole, (*above, f"{name}x"), 1)))
        yield f"{name}x: unknown key"
        path.write_text(text.replace(f'"{name}":', f'"{name}": 3, "{name}":', 1))
        yield f"{name}: stands more than once"


def no_objects_after_whole(path: Path) -> Iterator[str]:
    """No JSON objects, and a whole file with something behind it."""
    whole = path.read_bytes()
    yield from no_objects(path)
    path.write_bytes(whole + b"x")
    yield ""


# --- pi.npz ---------------------------------------------------------------------------------------


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy(shape: str, kind: str = "<f4") -> bytes:
    """An array of zeros that claims a shape."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


def packed(method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def saved(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


SHAPES = ("(1000000000000000,)", "(-1,)", "(True,)", "(99999999999999999999999,)", "((", "3")
NO_TRAJECTORIES = (
    b"PK",
    npy("(3,)"),
    b"\x80\x04N.",
    *(packed(alpha=npy(shape)) for shape in SHAPES),
    packed(alpha=npy("(2,)", "|O")),
    packed(alpha=b"\x93NUMPY\x09\x00"),
    packed(alpha=bytes(10**7)),
)
ALPHA_NLC = np.zeros((4, 2, 3), np.float32)
ARRAYS = {
    "step": np.arange(1, 5),
    "alpha": ALPHA_NLC,
    "pi": np.full_like(ALPHA_NLC, 1 / 3),
    "tau": np.ones(4, np.float32),
    "labels": np.array(["attention", "dense", "identity"]),
    "alpha_start": np.array(2),
    PEAK_LRS: np.array([0.05]),
}
WRONG_ARRAYS: list[dict[str, Any]] = [
    {"alpha": ALPHA_NLC[0]}, {"alpha": ALPHA_NLC[:, :0]}, {"alpha": ALPHA_NLC[:-1]},
    {"alpha": ALPHA_NLC.astype("U9")}, {"labels": np.array(["a"])},
    {"labels": np.array([1, 2, 3])}, {"tau": np.ones(1, np.float32)},
    {"pi": ARRAYS["pi"][:, :1]}, {"alpha_start": np.array([1, 2])}, {"alpha_start": np.array("x")},
]  # fmt: skip
# What changes no shape is looked at by who derives, not by who draws.
WRONG_VALUES: list[dict[str, Any]] = [
    {"alpha": np.full_like(ALPHA_NLC, np.nan)}, {"step": ARRAYS["step"] + 1},
    {"step": ARRAYS["step"].astype(float)}, {PEAK_LRS: np.array([np.nan])},
]  # fmt: skip


def trajectory_lies(path: Path, changes: list[dict[str, Any]]) -> Iterator[str]:
    without = [{name: ...} for name in sorted(ARRAYS.keys() - {PEAK_LRS})]  # older files lack that
    every = ({**ARRAYS, **change} for change in [*without, *changes])
    arrays = [{n: array for n, array in each.items() if array is not ...} for each in every]
    bzip2 = packed(zipfile.ZIP_BZIP2, **{name: saved(array) for name, array in ARRAYS.items()})
    for content in (*NO_TRAJECTORIES, *(npz(**each) for each in arrays), bzip2):
        path.write_bytes(content)
        yield ""


def has_the_same_arrays(value: Any, content: bytes, whole: bytes) -> bool:
    """Whether a flipped bit hit a date, or what nobody reads."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return all(np.array_equal(file[name], array) for name, array in ARRAYS.items())
    except READ_ERRORS:
        return False


# --- result.json and what a report reads ----------------------------------------------------------

SCORES = {
    "nats_per_token": 1.5, "perplexity": 4.5, "tokens": 9, "bytes": 9, "bits_per_byte": 2.2,
    "word_perplexity": 30.5, "words": 3,
}  # fmt: skip
RESULT = {
    "name": "argmax-0", "seed": 0, "layout": "a d", "steps": 6, "best_step": 5, "parameters": 9,
    "flops_per_token": 7.5, "validations": 2, "valid": SCORES, "test": SCORES,
}  # fmt: skip
WRONG_RESULTS = {
    "test": [None, 3, [], {}], "valid": [None, {"nats_per_token": 1}], "validations": [None, "x"],
    "name": [3, None, "x" * 300], "seed": [-1, 0.5, "0"], "layout": [None], "parameters": ["x", -1],
    "flops_per_token": [float("nan"), float("inf"), "x"], "steps": [0, None], "best_step": [[]],
}  # fmt: skip


def result_lies(path: Path) -> Iterator[str]:
    yield from no_objects_after_whole(path)
    path.write_text(json.dumps(RESULT))
    yield from changed_objects(
        path, [{k: new} for k, news in WRONG_RESULTS.items() for new in news]
    )
    for key in SCORES:
        for value in (None, "x", float("nan"), -1):
            # A lossy tokenizer has no bytes.
            if value is not None or key not in ("bytes", "bits_per_byte"):
                path.write_text(json.dumps({**RESULT, "test": {**SCORES, key: value}}))
                yield key
    for key in WRONG_RESULTS:
        path.write_text(json.dumps({name: value for name, value in RESULT.items() if name != key}))
        yield key


def trajectory(read: Any, changes: list[dict[str, Any]]) -> Kind:
    return Kind(
        "pi.npz",
        lambda folder: (folder / "pi.npz").write_bytes(npz(**ARRAYS)),
        read,
        lambda path: trajectory_lies(path, changes),
        has_the_same_arrays,
    )


KINDS = [
    Kind(
        "architecture.json",
        lambda folder: (folder / "architecture.json").write_text(architecture().to_json()),
        load_architecture,
        architecture_lies,
        lambda value, content, whole: json.loads(value.to_json()) == json.loads(content),
    ),
    trajectory(load_pi, [*WRONG_ARRAYS, *WRONG_VALUES]),
    Kind(
        "result.json",
        lambda folder: (folder / "result.json").write_text(json.dumps(RESULT)),
        read_result,
        result_lies,
        says_what_is_read,
    ),
]
