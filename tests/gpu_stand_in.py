"""A device that stands for a GPU: its tensors lie elsewhere to torch, and in the CPU's memory.

It fails where tensors of two devices meet, or a generator is not the device's, and notes where the
host waits for a number. It changes torch for the whole process, so `python -m tests.gpu_stand_in`
runs everything on it and prints the waits as JSON. It is the second of two cards, though torch,
whose interface for it is private (tests/test_one_device.py), knows one alone: what CUDA says of the
current card is played. Autocast, fused Adam, NCCL and memory of a GPU are not its matter.
"""

import json
import multiprocessing
import os
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils import backend_registration as private
from torch.utils._pytree import tree_leaves, tree_map

from data import EvaluationStreams
from export.graph import GraphModel
from export.scoring import Row, score
from model import LanguageModel
from model.attention_kernels import KERNELS
from model.distillation import Teacher
from model.generation import Sampling, generate
from nas.search.estimators import ESTIMATORS, soft_net
from nas.search.step import build_alpha
from pipeline.devices import find_device
from tests import tiny
from tests.nas.search.test_step import make, run
from tests.test_ranks import EVERY_KIND, free_port, variables
from training.checkpoint import Checkpoints
from training.config import OptimiserConfig
from training.distributed import ALONE, Ranks, join
from training.evaluation import evaluate, evaluate_cells
from training.optim import build_optimiser, rate_of
from training.state import TrainState
from training.step import Forward, LayerDropoutStep, WeightStep


class _Backend(private._DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


private._setup_privateuseone_for_python_backend("elsewhere", _Backend())
# A module that moves gets new parameters: torch would take these for tensors of one kind.
torch.__future__.set_overwrite_module_params_on_conversion(True)
ELSEWHERE = torch.device("elsewhere", 0)
# What the host is told only when the device is done; copies to the CPU are looked at apart.
_WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "_unique2"}
_MAY_MIX = {"copy_", "_to_copy"}
waits: Counter[str] = Counter()
Waits = dict[str, int]
# Of two cards; the device is the second.
generators = [torch.Generator(), torch.Generator()]


class Elsewhere(Tensor):
    """A tensor whose numbers lie in `raw`, which nobody but the device reads."""

    raw: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: Tensor) -> "Elsewhere":
        place = {"strides": raw.stride(), "storage_offset": raw.storage_offset()}
        # A view of a weight is no tensor of inference mode, there either.
        with torch.inference_mode(raw.is_inference()):
            made = Tensor._make_wrapper_subclass(
                cls, raw.size(), dtype=raw.dtype, device=ELSEWHERE, **place
            )
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # In inference mode an operation that is made of others comes here as it is.
        made = op.decompose(*args, **(kwargs or {}))
        return _run(op, *args, **(kwargs or {})) if made is NotImplemented else made

    def tolist(self) -> Any:
        return self.cpu().tolist()


def _file() -> str:
    """The file of ours that asks."""
    files = [frame.filename for frame in traceback.extract_stack()]
    ours = [name for name in files if "/site-packages/" not in name]
    found = [name for name in ours if not name.endswith(("gpu_stand_in.py", "mock.py"))]
    # The backward pass has a thread of its own, in which an error would end the process.
    return found[-1].rpartition("/")[2] if found else "the backward pass"


def _run(op: Any, *args: Any, **kwargs: Any) -> Any:
    name = op._schema.name.removeprefix("aten::")
    leaves = tree_leaves((args, kwargs))
    given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    here = [tensor for tensor in given if not isinstance(tensor, Elsewhere)]
    if any(t.dim() for t in here) and len(here) < len(given) and name not in _MAY_MIX:
        raise RuntimeError(f"{name}: tensors of two devices")
    if any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(f"{name}: the generator is the CPU's")
    asked = kwargs.get("device")
    to_cpu = name == "copy_" and not isinstance(args[0], Elsewhere)
    to_cpu = to_cpu or (name == "_to_copy" and asked is not None and asked.type == "cpu")
    if name in _WAITS or to_cpu:
        waits[_file()] += 1
    known = {id(tensor.raw): tensor for tensor in given if isinstance(tensor, Elsewhere)}

    def inner(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value.raw if isinstance(value, Elsewhere) else value

    def outer(value: Any) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, Elsewhere):
            return value
        return known[id(value)] if id(value) in known else Elsewhere(value)

    arguments = list(tree_map(inner, args))
    for place, argument in enumerate(op._schema.arguments[: len(arguments)]):
        # A number that stands for a tensor comes here as a number.
        if isinstance(arguments[place], bool | int | float) and str(argument.type) == "Tensor":
            arguments[place] = torch.tensor(arguments[place])
    # What else is drawn there would be the CPU's.
    called = _dropout if name == "native_dropout" else op
    result = called(*arguments, **tree_map(inner, kwargs))
    return result if name == "_local_scalar_dense" or to_cpu else tree_map(outer, result)


def _dropout(x: Tensor, rate: float, train: bool) -> tuple[Tensor, Tensor]:
    mask = torch.rand(x.shape, generator=generators[1]) >= rate
    return x * mask / (1 - rate), mask


def _waited(run: Callable[[], object]) -> Waits:
    """Where the host waits for the device while this runs, and how often."""
    waits.clear()
    run()
    return dict(waits)


def _model(*kinds: Any) -> LanguageModel:
    return tiny.language_model([tiny.candidates(*kinds)] * 2, dtype=torch.float32).to(ELSEWHERE)


def _with_dropout(model: LanguageModel) -> LanguageModel:
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.1
    return model


def _state(
    model: LanguageModel, config: OptimiserConfig, rows: int = 4, **parts: Any
) -> TrainState:
    streams = {name: model.train().initial_state(rows) for name in ("weights", "alpha")}
    optimisers = {"weights": build_optimiser(model, config), **parts.pop("optimisers", {})}
    loss = torch.zeros((), dtype=torch.float64, device=ELSEWHERE)
    return TrainState(model=model, optimisers=optimisers, streams=streams, loss_sum=loss, **parts)


def _last(step: Callable[..., object], state: TrainState, until: int = 3) -> Waits:
    """The waits of the last step of so many."""
    found = Waits()
    while state.step < until:
        batch = tiny.batch(4, 7, seed=state.step, first=state.step == 0)
        found = _waited(partial(step, state, batch))
        state.step += 1
    return found


def _apart(one: LanguageModel, two: LanguageModel) -> float:
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


# torch's fused Adam does not know this device.
def training(
    kind: Any, optimiser: str = "lamb", rate: float = 0.0, teacher: Teacher | None = None,
    **forward: Any,
) -> Waits:  # fmt: skip
    """Of a step; `rate` is that at which blocks are left out."""
    clipping = {"clip_norm": 0.3, "clip_each_norm": 0.2, "clip_value": 0.1}
    config = OptimiserConfig.model_validate(
        {"kind": optimiser, "lr": 0.01, "warmup_steps": 0, **clipping}
    )
    forward_now = Forward(ELSEWHERE, "float32", **forward)
    step = WeightStep(forward_now, config, rate_of(config, 10), teacher)
    state = _state(_model(kind), config)
    if teacher is not None:
        state.streams["teacher"] = teacher.initial_state(4)
        state.kl_sum = torch.zeros_like(state.loss_sum)
    if rate:
        _with_dropout(state.model)
        return _last(LayerDropoutStep(step, rate, 0), state)
    return _last(step, state)


def resumed(set_device: bool) -> float:
    """How far a run that was cut ends from one that was not; CUDA may be told the run's card."""
    config = OptimiserConfig.model_validate({"kind": "lamb", "lr": 0.01, "warmup_steps": 0})
    step = WeightStep(Forward(ELSEWHERE, "float32"), config, rate_of(config, 10))
    whole, again = (_state(_with_dropout(_model(EVERY_KIND[0])), config) for _ in range(2))
    current = [0]
    cuda: dict[str, Callable[..., object]] = {
        "is_initialized": lambda: True,
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": lambda device: current.insert(0, device.index if set_device else 0),
        "get_rng_state": lambda: generators[current[0]].get_state(),
        "set_rng_state": lambda state: generators[current[0]].set_state(state),
    }
    with mock.patch.multiple("torch.cuda", **cuda), TemporaryDirectory() as folder:
        assert find_device("cuda:1").index == 1
        checkpoints = Checkpoints(Path(folder))
        _last(step, whole, 2)
        checkpoints.save(whole)
        _last(step, whole, 4)
        checkpoint = checkpoints.find()
        assert checkpoint is not None
        checkpoint.restore(again)
        _last(step, again, 4)
    return _apart(whole.model, again.model)


def _of_two(rank: int, port: int) -> dict[str, float]:
    """How far a process's weights are from those of one alone, by kind."""
    os.environ |= variables(rank, 2, port)
    config = OptimiserConfig.model_validate({"kind": "sgd", "lr": 0.1, "warmup_steps": 0})

    def trained(kind: Any, ranks: Ranks) -> LanguageModel:
        step = WeightStep(Forward(ELSEWHERE, "float32", ranks=ranks), config, lambda step: 0.1)
        state = _state(_model(kind), config, rows=ranks.count(4))
        _last(step, state)
        return state.model

    both = join()
    return {kind["kind"]: _apart(trained(kind, both), trained(kind, ALONE)) for kind in EVERY_KIND}


def search(estimator: str, data: str) -> Waits:
    step, state = make(
        estimator=estimator, alpha_estimator="soft" if estimator == "spos" else None,
        model=_model("attention", "dense", "identity").train(), places=2,
        forward=Forward(ELSEWHERE, "float32"), data=data, warmup_fraction=0.0,
    )  # fmt: skip
    state.loss_sum = state.loss_sum.to(ELSEWHERE)
    run(step, state, 2)
    return _waited(partial(run, step, state, 1))


def reading(kind: Any) -> dict[str, Waits]:
    model, name = _model(kind).eval(), kind["kind"]
    streams = EvaluationStreams(np.arange(90) % tiny.VOCABULARY, streams=3, segment=6)
    read = partial(evaluate, model, streams, byte_length_V=None, device=ELSEWHERE)
    prompts, rows = [[0, 3, 1, 4]], [Row((0, 3, 1, 4, 2), 2), Row((0, 5, 1), 1)]
    graph = GraphModel(tiny.language_model([tiny.candidates(kind)] * 2, dtype=torch.float32))
    memories = {key: value.to(ELSEWHERE) for key, value in graph.zeros(2).items()}
    ids_BT = tiny.batch().input_BT.to(ELSEWHERE)
    sampling = Sampling(top_k=5, top_p=0.9)
    calls: dict[str, Callable[[], object]] = {
        "evaluate": read,
        "recached": partial(read, cached=False),
        "cells": partial(evaluate_cells, model, streams, device=ELSEWHERE),
        "generate": partial(generate, model, prompts, 6, sampling=sampling, seeds=[1]),
        "score": partial(score, model, rows, segment=4, batch=2),
        "graph": partial(torch.no_grad()(graph.to(ELSEWHERE)), ids_BT, memories),
    }
    return {f"{call} {name}": _waited(run) for call, run in calls.items()}


def planted(name: str) -> str:
    """What comes of a fault that is planted in a training step."""
    arange, block = torch.arange, EVERY_KIND[0]
    faults: dict[str, Callable[..., Any]] = {
        "torch.arange": lambda *ends, device=None, **rest: arange(*ends, **rest),
        "torch.Tensor.detach": lambda self: (float(self.sum()), torch.detach(self))[1],
        "torch.Tensor.relu": lambda self: (self.sum().item(), torch.relu(self))[1],
        "torch.nn.functional.layer_norm": lambda x, *_: (
            x + torch.rand(x.shape, device=x.device, generator=torch.Generator())
        ),
    }
    kind = {"kind": "dense"} if name == "torch.Tensor.relu" else block
    with mock.patch(name, faults[name]):
        try:
            return f"{sum(training(kind).values())} waits"
        except RuntimeError as error:
            return str(error)


def main() -> None:
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(_run, "PrivateUse1")
    copies = torch.library.Library("aten", "IMPL")
    copies.impl("copy_", partial(_run, torch.ops.aten.copy_.default), "PrivateUse1")
    port = free_port()
    # Before the backward pass has threads, which no copy of this process would have.
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found: dict[str, Any] = {"two": pool.starmap(_of_two, [(0, port), (1, port)], 1)}
    found["resumed"] = [resumed(set_device=True), resumed(set_device=False)]
    for kind in EVERY_KIND:
        found[f"train {kind['kind']}"] = training(kind)
        found[f"parts {kind['kind']}"] = training(kind, micro_batches=2, recompute=True)
        found |= reading(kind)
    for optimiser in ("sgd", "adagrad"):
        found[f"train {optimiser}"] = training(EVERY_KIND[0], optimiser, rate=0.5)
    taught = Teacher(_model("dense"), weight=0.5, temperature=2.0)
    found["train taught"] = training(EVERY_KIND[0], teacher=taught, micro_batches=2)
    for path in KERNELS:
        found[f"train {path}"] = training(EVERY_KIND[0], attention=path)
    supernet = _model("attention", "dense", "identity")
    streams = EvaluationStreams(np.arange(90) % tiny.VOCABULARY, streams=3, segment=6)
    read = partial(evaluate, supernet, streams, byte_length_V=None, device=ELSEWHERE)
    found["evaluate supernet"] = _waited(partial(read, mix=soft_net(build_alpha(2, 3))))
    for name in ESTIMATORS:
        for data in ("shared", "split", "next_batch"):
            if name != "spos" or data != "shared":
                found[f"search {name} {data}"] = search(name, data)
    names = ("arange", "Tensor.detach", "Tensor.relu", "nn.functional.layer_norm")
    found["planted"] = {name: planted(f"torch.{name}") for name in names}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
