"""Files of tensors for the battery of damages: checkpoints, best weights, models."""

import functools
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save, save_file

from model import load_model, save_model
from tests import tiny
from tests.damage import Kind
from tests.model.test_saving import pair
from training import checkpoint
from training.checkpoint import read_checkpoint, save_checkpoint
from training.checkpoints import Checkpoints
from training.config import OptimiserConfig
from training.distributed import ALONE
from training.optim import build_optimiser, rate_of
from training.state import Best, TrainState
from training.step import Forward, WeightStep
from training.tensor_file import write_tensors

STEPS = 50
WEIGHT = "model.norm.weight"
MOMENT = "optimiser.weights.0.exp_avg"


MIX = [[(0, None)], [(1, None)], [(2, None)]]


def trained(steps: int, *, seed: int = 0) -> TrainState:
    """A state after some steps of AdamW with single-path draws, so that moments differ."""
    model = tiny.supernet(seed=seed)
    config = OptimiserConfig(warmup_steps=0)
    state = tiny.state_of(model, parameters={"alpha": torch.nn.Parameter(torch.zeros(3, 3))})
    state.optimisers["weights"] = build_optimiser(model, config)
    step = WeightStep(Forward(torch.device("cpu"), "float32"), config, rate_of(config, STEPS))
    for index in range(steps):
        step(state, tiny.batch(seed=index), lambda: MIX)
        state.step += 1
    return state


@functools.cache
def state_after(steps: int) -> TrainState:
    return trained(steps)


def into_another_state(read: Any, path: Path, *more: Any) -> Any:
    """Read into a state of the same run; nothing of it may change, whatever the file says."""
    state, random_state = state_after(1), torch.get_rng_state()
    before = {name: tensor.clone() for name, tensor in checkpoint._tensors_of(state, ALONE).items()}
    try:
        return read(path, state, "me", *more)
    finally:
        now = checkpoint._tensors_of(state, ALONE)
        assert now.keys() == before.keys()
        assert all(torch.equal(now[n], before[n]) for n in before if n != "random.cpu")
        assert torch.equal(torch.get_rng_state(), random_state)
        assert (state.step, state.tokens) == (1, 8)


def raw(layout: Any, data: bytes = b"") -> bytes:
    """A safetensors file with a header of one's own."""
    head = layout if isinstance(layout, bytes) else json.dumps(layout).encode()
    return struct.pack("<Q", len(head)) + head + data


FLOAT = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
FOREIGN = (
    bytes(7),
    (1 << 63).to_bytes(8, "little") + b"{}",
    (1 << 40).to_bytes(8, "little") + b"{}",
    raw({}),
    raw({"x": FLOAT, "y": FLOAT}, bytes(4)),
    raw(b'{"x":' + json.dumps(FLOAT).encode() + b',"x":' + json.dumps(FLOAT).encode() + b"}"),
    save({"x": torch.zeros(3)}),
    save({"x": torch.zeros(3)}, metadata={"format": "pt"}),
)
METADATA = (
    3, "", "{", "[]", "[2]", '"x"', "3", "{}", '{"architecture": 3}', '{"version": 2}',
    '{"version": 2e400}', "[" * 10**5, "\ud800",
)  # fmt: skip


def headers(header: dict[str, Any]) -> Iterator[Any]:
    """Headers that lie."""
    first = next(name for name in header if name != "__metadata__")
    begin, end = header[first]["data_offsets"]
    for fields in (
        {"shape": [10**15]},
        {"shape": [10**15], "data_offsets": [begin, begin + 4 * 10**15]},
        {"shape": [2**63, 2**63]},
        {"shape": [-1]},
        {"data_offsets": [end, begin]},
        {"data_offsets": ["a", "b"]},
        {"dtype": "F31"},
        {"dtype": "I32"},
    ):
        yield {**header, first: {**header[first], **fields}}
    yield {name: value for name, value in header.items() if name != first}
    yield {("x" if name == first else name): value for name, value in header.items()}
    yield {"__metadata__": header["__metadata__"]}
    yield {name: value for name, value in header.items() if name[0] != "_"}
    yield {**header, "__metadata__": []}
    yield from ({**header, "__metadata__": {"parnas": text}} for text in METADATA)
    yield from (b'{"a": ' * 10**5, b"[" * 10**5, b"[]", b'{"\\ud800": 1}', b"\xff" * 20)


def header_lies(path: Path) -> Iterator[str]:
    """They must be refused before memory is taken for what they promise."""
    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    lying = (raw(header, content[start:]) for header in headers(json.loads(content[8:start])))
    for other in (*lying, *FOREIGN):
        path.write_bytes(other)
        yield ""
    path.write_bytes(content)


def forged(path: Path, header: dict[str, Any] | None = None, **tensors: Any) -> None:
    """A checkpoint with a right checksum and another content; Ellipsis takes something out."""
    state = state_after(3)
    whole = {
        "identity": "me",
        "step": 3,
        "loss_steps": 3,
        "tokens": 24,
        "best": state.best.model_dump(),
        "validations": 1,
        "elapsed_s": 1.5,
        **(header or {}),
    }
    every = {**checkpoint._tensors_of(state, ALONE), **tensors}
    write_tensors(
        path,
        {name: tensor for name, tensor in every.items() if tensor is not ...},
        {name: value for name, value in whole.items() if value is not ...},
    )


HEADERS: list[dict[str, Any]] = [
    *({"step": wrong} for wrong in ("3", True, 3.5, None, 0, -3, STEPS + 1, 1 << 70, ...)),
    *({"loss_steps": wrong} for wrong in (STEPS + 1, -1)),
    *({"tokens": wrong} for wrong in ("many", -1)),
    *({"validations": wrong} for wrong in (STEPS + 1, -1, ...)),
    *({"elapsed_s": wrong} for wrong in (float("nan"), -1.0, [1])),
    *({"best": wrong} for wrong in ({}, None, {"nats_per_token": "low", "step": 1})),
    {"best": {"nats_per_token": 1.0, "step": STEPS + 1}},
    {"best": {"nats_per_token": 1.0, "step": 1, "more": 2}},
    *({"identity": wrong} for wrong in ("you", None, ...)),
    {"colour": "red"},
    *({"version": wrong} for wrong in (2, 4, "3")),
]
TENSORS: list[tuple[str, Any, str]] = [
    (WEIGHT, ..., f"{WEIGHT}: missing"),
    (WEIGHT, torch.zeros(9, dtype=torch.float64), r"float64 \[9\] instead of float64 \[8\]"),
    (WEIGHT, torch.zeros(8), r"float32 \[8\] instead of float64 \[8\]"),
    ("model.more", torch.zeros(1), "model.more: no such tensor"),
    ("parameter.alpha", ..., "parameter.alpha: missing"),
    ("parameter.alpha", torch.zeros(3, 2), r"parameter.alpha: float32 \[3, 2\] instead"),
    ("stream.weights.seen", ..., "stream.weights.seen: missing"),
    ("stream.weights.seen", torch.zeros(2), "float32 .* instead of int64"),
    ("stream.weights.memory.9", torch.zeros(2), "memory.9: no such tensor"),
    ("stream.other.seen", torch.zeros(2), "stream.other.seen: no such tensor"),
    ("loss_sum", torch.zeros(1, dtype=torch.float64), "loss_sum: "),
    ("loss_sum", ..., "loss_sum: missing"),
    ("random.cpu", torch.zeros(16, dtype=torch.uint8), "random.cpu: "),
    ("random.cpu", torch.full_like(torch.get_rng_state(), 255), "random.cpu: "),
    (MOMENT, ..., f"{MOMENT}: missing"),
    (MOMENT, torch.zeros(1), f"{MOMENT}: "),
    ("optimiser.weights.0.step", torch.zeros(1), "optimiser.weights.0.step: "),
    ("optimiser.weights.0.momentum_buffer", torch.zeros(1), "no such tensor"),
    ("optimiser.weights.9999.exp_avg", torch.zeros(1), "no such tensor"),
    ("optimiser.weights.x.exp_avg", torch.zeros(1), "no such tensor"),
    ("optimiser.alpha.0.exp_avg", torch.zeros(1), "no such tensor"),
]


def checkpoint_lies(path: Path) -> Iterator[str]:
    yield from header_lies(path)
    whole = path.read_bytes()
    # A step or a count with another digit would be a whole header of another run.
    for place in range(whole.index(b"parnas"), whole.index(b"sha256")):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        yield ""
    forged(path)
    CHECKPOINT.read(path)  # what is forged below is otherwise whole
    for header in HEADERS:
        forged(path, header)
        yield ""
    for name, tensor, message in TENSORS:
        forged(path, **{name: tensor})
        yield f"does not fit .*{message}"


def read_best(path: Path, state: TrainState, identity: str) -> dict[str, torch.Tensor]:
    of_step_3 = replace(state, best=Best(nats_per_token=1.0, step=3))
    return Checkpoints(path.parent, identity, STEPS).read_best(of_step_3)


def best_lies(path: Path) -> Iterator[str]:
    yield from header_lies(path)
    tensors = read_best(path, state_after(1), "me")
    assert torch.equal(tensors[WEIGHT], state_after(3).model.norm.weight)
    Checkpoints(path.parent, "you", STEPS).save_best(state_after(3))
    yield "belongs to another experiment"
    write_tensors(path, tensors, {"identity": "me", "step": "3"})
    yield r"best-3\.safetensors: step: "
    write_tensors(path, tensors, {"identity": "me", "step": 2})
    yield r"best-3\.safetensors: is of step 2"
    write_tensors(path, {**tensors, "more": torch.zeros(1)}, {"identity": "me", "step": 3})
    yield "more: no such tensor in this run"


def model_lies(path: Path) -> Iterator[str]:
    yield from header_lies(path)
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    for name, tensor in tensors.items():
        for change, message in (
            ({name: None}, f"{name}: missing"),
            ({f"{name}x": tensor.clone()}, f"{name}x: no such tensor"),
            ({name: tensor[None].clone()}, f"{name}: shape"),
            ({name: tensor.half()}, ": type F"),
            ({name: tensor + 1}, "damaged, its tensors are not those that were saved"),
        ):
            changed = {
                key: value for key, value in {**tensors, **change}.items() if value is not None
            }
            save_file(changed, path, metadata)
            yield message


KINDS = [
    CHECKPOINT := Kind(
        "last.safetensors",
        lambda folder: save_checkpoint(folder / "last.safetensors", state_after(3), "me", ALONE),
        lambda path: into_another_state(read_checkpoint, path, STEPS, ALONE),
        checkpoint_lies,
    ),
    Kind(
        "best-3.safetensors",
        lambda folder: Checkpoints(folder, "me", STEPS).save_best(state_after(3)),
        lambda path: into_another_state(read_best, path),
        best_lies,
    ),
    Kind(
        "model.safetensors",
        lambda folder: save_model(folder, *pair(cutoffs=(5, 11))),
        lambda path: load_model(path.parent),
        model_lies,
        others=("architecture.json",),
    ),
]
