"""Damaged checkpoints: each is refused in one line that names it, and nothing is half restored."""

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch import Tensor

from tests import tiny
from tests.training.test_checkpoint import STEPS, trained
from training import checkpoint
from training.checkpoint import (
    LAST,
    PREVIOUS,
    Checkpoints,
    read_best,
    read_checkpoint,
    save_best,
    save_checkpoint,
)
from training.config import OptimiserConfig
from training.loop import TrainState
from training.optim import build_optimiser, rate_of
from training.step import Forward, WeightStep
from training.tensor_file import read_tensors, write_tensors

DAMAGED = 200
_HEADER_START = 8


@pytest.fixture(scope="module")
def trained_3() -> TrainState:
    return trained(3)


@pytest.fixture(scope="module")
def fresh() -> Iterator[TrainState]:
    """Another state of the same run; no refusal may touch it."""
    state = trained(1)
    before = tensors_of(state)
    yield state
    now = tensors_of(state)
    assert now.keys() == before.keys()
    assert all(torch.equal(now[n], before[n]) for n in before if n != "random.cpu")
    assert (state.step, state.tokens) == (1, 8)


@pytest.fixture(scope="module")
def whole(trained_3: TrainState, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "a.safetensors"
    save_checkpoint(path, trained_3, "me")
    return path.read_bytes()


def header_end(content: bytes) -> int:
    return _HEADER_START + int.from_bytes(content[:8], "little")


def cut(content: bytes, generator: random.Random) -> bytes:
    return content[: generator.randrange(len(content))]


def flip(content: bytes, generator: random.Random, start: int, end: int) -> bytes:
    changed = bytearray(content)
    changed[generator.randrange(start, end)] ^= 1 << generator.randrange(8)
    return bytes(changed)


def zeroed(content: bytes, generator: random.Random) -> bytes:
    """A page of zeros, as a disk leaves it that lost a write."""
    start = generator.randrange(len(content) // 64) * 64
    return content[:start] + bytes(len(content[start : start + 64])) + content[start + 64 :]


def swapped(content: bytes, generator: random.Random) -> bytes:
    one, two = sorted(generator.sample(range(len(content)), 2))
    return content[two:] + content[one:two] + content[:one]


def damaged(content: bytes, seed: int) -> bytes:
    generator = random.Random(seed)
    kinds: list[Callable[[], bytes]] = [
        lambda: cut(content, generator),
        lambda: flip(content, generator, 0, 8),
        lambda: flip(content, generator, _HEADER_START, header_end(content)),
        lambda: flip(content, generator, header_end(content), len(content)),
        lambda: zeroed(content, generator),
        lambda: swapped(content, generator),
        lambda: content + generator.randbytes(1 + generator.randrange(9)),
        lambda: generator.randbytes(generator.randrange(len(content))),
    ]
    return kinds[seed % len(kinds)]()


def tensors_of(state: TrainState) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in checkpoint._tensors_of(state).items()}


def test_two_hundred_damaged_checkpoints_are_refused_by_name(
    whole: bytes, fresh: TrainState, tmp_path: Path
) -> None:
    path, random_state = tmp_path / "a.safetensors", torch.get_rng_state()
    for seed in range(DAMAGED):
        content = damaged(whole, seed)
        if content == whole:
            continue
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.safetensors: ") as error:
            read_checkpoint(path, fresh, "me", STEPS)
        assert "\n" not in str(error.value), seed
    assert torch.equal(torch.get_rng_state(), random_state)
    path.write_bytes(whole)
    assert read_checkpoint(path, fresh, "me", STEPS).step == 3


def test_no_bit_of_the_header_can_change(whole: bytes, fresh: TrainState, tmp_path: Path) -> None:
    """A step or a count with another digit would be a whole header of another run."""
    path = tmp_path / "a.safetensors"
    start = whole.index(b"parnas")
    for place in range(start, whole.index(b"sha256")):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ValueError, match=r"a\.safetensors: "):
            read_checkpoint(path, fresh, "me", STEPS)


def raw(layout: Any, data: bytes = b"") -> bytes:
    """A safetensors file with a header of one's own."""
    head = layout if isinstance(layout, bytes) else json.dumps(layout).encode()
    return len(head).to_bytes(8, "little") + head + data


HUGE = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}
FLOAT = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
OURS = {"parnas": json.dumps({"version": 2}), "sha256": "0" * 64}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(7),
        (1 << 63).to_bytes(8, "little"),
        (1 << 40).to_bytes(8, "little") + b"{}",
        raw({}),
        raw({"__metadata__": OURS}),
        raw({"__metadata__": OURS, "x": HUGE}),
        raw({"__metadata__": OURS, "x": HUGE}, bytes(64)),
        raw({"__metadata__": OURS, "x": {**FLOAT, "shape": [-1]}}, bytes(4)),
        raw({"__metadata__": OURS, "x": {**FLOAT, "shape": [1 << 62, 1 << 62]}}, bytes(4)),
        raw({"__metadata__": OURS, "x": {**FLOAT, "data_offsets": [4, 0]}}, bytes(4)),
        raw({"__metadata__": OURS, "x": FLOAT, "y": FLOAT}, bytes(4)),
        raw({"__metadata__": OURS, "x": {**FLOAT, "dtype": "F33"}}, bytes(4)),
        raw(b'{"x":' + json.dumps(FLOAT).encode() + b',"x":' + json.dumps(FLOAT).encode() + b"}"),
        raw({"__metadata__": {"parnas": 3}}),
        raw({"__metadata__": {"parnas": "[" * 100_000}}),
        raw({"__metadata__": {"parnas": '{"version": 2e400}'}}),
        raw({"__metadata__": {"parnas": "[2]"}}),
        raw({"__metadata__": []}),
        raw([]),
        raw(b"[" * 100_000),
        raw(b"\xff" * 20),
        save({"x": torch.zeros(3)}),
        save({"x": torch.zeros(3)}, metadata={"format": "pt"}),
    ],
)
def test_files_of_others_and_forged_headers_are_refused(
    fresh: TrainState, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.safetensors: ") as error:
        read_checkpoint(path, fresh, "me", STEPS)
    assert "\n" not in str(error.value)


def forged(path: Path, state: TrainState, **changes: Any) -> None:
    """A checkpoint with a right checksum and another content."""
    header = {
        "identity": "me",
        "step": 3,
        "loss_steps": 3,
        "tokens": 24,
        "best": asdict(state.best),
        "elapsed_s": 1.5,
        **changes.pop("header", {}),
    }
    tensors = {**checkpoint._tensors_of(state), **changes.pop("tensors", {})}
    header = {k: v for k, v in header.items() if v is not Ellipsis}
    write_tensors(path, {k: v for k, v in tensors.items() if v is not None}, header)


def test_what_is_forged_below_is_otherwise_whole(
    trained_3: TrainState, fresh: TrainState, tmp_path: Path
) -> None:
    forged(tmp_path / "a.safetensors", trained_3)
    read_checkpoint(tmp_path / "a.safetensors", fresh, "me", STEPS)


@pytest.mark.parametrize(
    "header",
    [
        {"step": "3"},
        {"step": True},
        {"step": 3.5},
        {"step": None},
        {"step": 0},
        {"step": -3},
        {"step": STEPS + 1},
        {"step": 1 << 70},
        {"step": ...},
        {"loss_steps": STEPS + 1},
        {"loss_steps": -1},
        {"tokens": "many"},
        {"tokens": -1},
        {"elapsed_s": float("nan")},
        {"elapsed_s": -1.0},
        {"elapsed_s": [1]},
        {"best": {}},
        {"best": None},
        {"best": {"nats_per_token": "low", "step": 1}},
        {"best": {"nats_per_token": 1.0, "step": STEPS + 1}},
        {"best": {"nats_per_token": 1.0, "step": 1, "more": 2}},
        {"identity": "you"},
        {"identity": None},
        {"identity": ...},
        {"colour": "red"},
        {"version": 1},
        {"version": 3},
        {"version": "2"},
    ],
)
def test_header_fields_of_wrong_types_are_refused(
    trained_3: TrainState, fresh: TrainState, tmp_path: Path, header: dict[str, Any]
) -> None:
    forged(tmp_path / "a.safetensors", trained_3, header=header)
    with pytest.raises(ValueError, match=r"a\.safetensors: ") as error:
        read_checkpoint(tmp_path / "a.safetensors", fresh, "me", STEPS)
    assert "\n" not in str(error.value)


WEIGHT = "model.norm.weight"
MOMENT = "optimiser.weights.0.exp_avg"


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({WEIGHT: None}, f"{WEIGHT}: missing"),
        ({WEIGHT: torch.zeros(9, dtype=torch.float64)}, r"float64 \[9\] instead of float64 \[8\]"),
        ({WEIGHT: torch.zeros(8)}, r"float32 \[8\] instead of float64 \[8\]"),
        ({"model.more": torch.zeros(1)}, "model.more: no such tensor"),
        ({"parameter.alpha": None}, "parameter.alpha: missing"),
        ({"parameter.alpha": torch.zeros(3, 2)}, r"parameter.alpha: float32 \[3, 2\] instead"),
        ({"stream.weights.seen": None}, "stream.weights.seen: missing"),
        ({"stream.weights.seen": torch.zeros(2)}, "float32 .* instead of int64"),
        ({"stream.weights.memory.9": torch.zeros(2)}, "memory.9: no such tensor"),
        ({"stream.other.seen": torch.zeros(2)}, "stream.other.seen: no such tensor"),
        ({"loss_sum": torch.zeros(1, dtype=torch.float64)}, "loss_sum: "),
        ({"loss_sum": None}, "loss_sum: missing"),
        ({"random.cpu": torch.zeros(16, dtype=torch.uint8)}, "random.cpu: "),
        ({"random.cpu": torch.full_like(torch.get_rng_state(), 255)}, "random.cpu: "),
        ({MOMENT: None}, f"{MOMENT}: missing"),
        ({MOMENT: torch.zeros(1)}, f"{MOMENT}: "),
        ({"optimiser.weights.0.step": torch.zeros(1)}, "optimiser.weights.0.step: "),
        ({"optimiser.weights.0.momentum_buffer": torch.zeros(1)}, "no such tensor"),
        ({"optimiser.weights.9999.exp_avg": torch.zeros(1)}, "no such tensor"),
        ({"optimiser.weights.x.exp_avg": torch.zeros(1)}, "no such tensor"),
        ({"optimiser.alpha.0.exp_avg": torch.zeros(1)}, "no such tensor"),
    ],
)
def test_tensors_of_another_run_are_refused(
    trained_3: TrainState,
    fresh: TrainState,
    tmp_path: Path,
    tensors: dict[str, Tensor | None],
    said: str,
) -> None:
    forged(tmp_path / "a.safetensors", trained_3, tensors=tensors)
    with pytest.raises(ValueError, match=rf"a\.safetensors: does not fit .*{said}"):
        read_checkpoint(tmp_path / "a.safetensors", fresh, "me", STEPS)


@pytest.mark.parametrize(
    ("kind", "momentum"),
    [
        ("adamw", None),
        ("adam", None),
        ("lamb", None),
        ("adagrad", None),
        ("sgd", None),
        ("sgd", 0.9),
    ],
)
def test_every_optimiser_comes_back(tmp_path: Path, kind: str, momentum: float | None) -> None:
    config = OptimiserConfig.model_validate({"kind": kind, "momentum": momentum, "warmup_steps": 0})

    def made(steps: int) -> TrainState:
        state = tiny.state_of(tiny.supernet())
        state.optimisers["weights"] = build_optimiser(state.model, config)
        step = WeightStep(Forward(torch.device("cpu"), "float32"), config, rate_of(config, STEPS))
        for index in range(steps):
            step(state, tiny.batch(seed=index), lambda: [[(0, None)], [(1, None)], [(2, None)]])
            state.step += 1
        return state

    state, other = made(2), made(0)
    save_checkpoint(tmp_path / "a.safetensors", state, "me")
    read_checkpoint(tmp_path / "a.safetensors", other, "me", STEPS).restore(other)
    one, two = tensors_of(state), tensors_of(other)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def in_its_place(path: Path, what: str) -> None:
    if what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "dangling link":
        path.symlink_to(path.with_name("gone"))
    elif what == "link to itself":
        path.symlink_to(path)
    elif what == "device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "what", ["directory", "pipe", "dangling link", "link to itself", "device", "nothing"]
)
def test_what_is_no_file_is_refused_and_the_one_before_is_taken(
    trained_3: TrainState, fresh: TrainState, tmp_path: Path, what: str
) -> None:
    checkpoints = Checkpoints(tmp_path, "me", STEPS)
    checkpoints.save(trained_3)
    (tmp_path / LAST).rename(tmp_path / PREVIOUS)
    in_its_place(tmp_path / LAST, what)
    found = checkpoints.find(fresh)
    assert found is not None
    assert found.checkpoint.step == 3
    assert found.refused is not None
    assert found.refused.startswith("last.safetensors: ")
    checkpoints.set_aside()
    checkpoints.save(fresh)
    steps = [read_tensors(tmp_path / name)[1]["step"] for name in (LAST, PREVIOUS)]
    assert steps == [1, 3]


def test_the_last_two_are_kept_and_a_good_last_one_is_taken(
    trained_3: TrainState, fresh: TrainState, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path, "me", STEPS)
    assert checkpoints.find(fresh) is None
    for state in (fresh, fresh, trained_3):
        checkpoints.save(state)
    assert read_tensors(tmp_path / PREVIOUS)[1]["step"] == 1
    (tmp_path / PREVIOUS).write_bytes(b"nonsense")
    found = checkpoints.find(fresh)
    assert found is not None
    assert (found.checkpoint.step, found.refused) == (3, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LAST, PREVIOUS]


def test_two_unusable_ones_are_named_both_and_nothing_is_changed(
    whole: bytes, fresh: TrainState, tmp_path: Path
) -> None:
    (tmp_path / LAST).write_bytes(whole[:-9])
    (tmp_path / PREVIOUS).write_bytes(b"")
    checkpoints = Checkpoints(tmp_path, "me", STEPS)
    said = r"last\.safetensors: damaged .*; previous\.safetensors: damaged .* again from step 0"
    with pytest.raises(ValueError, match=said):
        checkpoints.find(fresh)
    assert (tmp_path / LAST).read_bytes() == whole[:-9]
    assert (tmp_path / PREVIOUS).read_bytes() == b""


@pytest.mark.parametrize("failing", [1, 2])
def test_a_rename_that_fails_leaves_a_whole_checkpoint(
    trained_3: TrainState,
    fresh: TrainState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: int,
) -> None:
    checkpoints = Checkpoints(tmp_path, "me", STEPS)
    checkpoints.save(fresh)
    checkpoints.save(trained_3)
    calls, replace = [], os.replace

    def failing_once(*names: Any) -> None:
        calls.append(names)
        if len(calls) == failing:
            raise OSError(5, "Input/output error")
        replace(*names)

    monkeypatch.setattr(os, "replace", failing_once)
    with pytest.raises(OSError, match=r"Input/output error: '.*last\.safetensors'"):
        checkpoints.save(fresh)
    monkeypatch.undo()
    found = checkpoints.find(fresh)
    assert found is not None
    assert found.checkpoint.step == 3
    assert not list(tmp_path.glob(".*"))


def test_our_files_are_laid_out_as_the_librarys_own(tmp_path: Path) -> None:
    tensors = {
        "a": torch.arange(3),
        "b": torch.randn(2, 3),
        "c": torch.zeros((), dtype=torch.float64),
        "d": torch.zeros(0, 4),
        "e": torch.randn(5).bfloat16(),
        "f": torch.tensor([True, False, True]),
        "g": torch.randint(255, (7,), dtype=torch.uint8),
        "h": torch.randn(4, 3).T,
    }
    write_tensors(tmp_path / "ours", tensors, {"x": 1})
    back, header = read_tensors(tmp_path / "ours")
    assert header == {"version": 2, "x": 1}
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)
    del tensors["f"]  # of two types of one width the library writes the wider range first
    write_tensors(tmp_path / "ours", tensors, {"x": 1})
    theirs = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(theirs, tmp_path / "theirs", metadata={"x": "y"})
    one, two = ((tmp_path / name).read_bytes() for name in ("ours", "theirs"))
    assert one[header_end(one) :] == two[header_end(two) :]
    layouts = [json.loads(content[8 : header_end(content)]) for content in (one, two)]
    for layout in layouts:
        del layout["__metadata__"]
    assert layouts[0] == layouts[1]


def test_the_best_weights_are_checked_like_a_checkpoint(
    trained_3: TrainState, fresh: TrainState, tmp_path: Path
) -> None:
    path = tmp_path / "best.safetensors"
    save_best(path, trained_3, "me")
    tensors, step = read_best(path, fresh, "me")
    assert step == 3
    assert torch.equal(tensors[WEIGHT], trained_3.model.norm.weight)
    with pytest.raises(ValueError, match="belongs to another experiment"):
        read_best(path, fresh, "you")
    whole = path.read_bytes()
    for seed in range(40):
        path.write_bytes(damaged(whole, seed))
        with pytest.raises(ValueError, match=r"best\.safetensors: "):
            read_best(path, fresh, "me")
    write_tensors(path, tensors, {"identity": "me", "step": "3"})
    with pytest.raises(ValueError, match=r"best\.safetensors: step: "):
        read_best(path, fresh, "me")
    write_tensors(path, {**tensors, "more": torch.zeros(1)}, {"identity": "me", "step": 3})
    with pytest.raises(ValueError, match="more: no such tensor in this run"):
        read_best(path, fresh, "me")
