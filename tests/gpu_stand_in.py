"""A device that stands for a GPU: its tensors lie elsewhere to torch, and in the CPU's memory.

It fails where tensors of two devices meet, or a generator is not the device's, and notes where the
host waits for a number. It changes torch for the whole process, so `python -m tests.gpu_stand_in`
runs everything on it and prints the waits as JSON. Autocast, fused Adam, generators and memory of
a GPU are not its matter. torch's interface for it is private (tests/test_one_device.py).
"""

import json
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
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
from model.generation import Sampling, generate
from nas.search.config import SearchConfig
from nas.search.estimators import ESTIMATORS, soft_net
from nas.search.plan import SearchPlan
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from tests import tiny
from tests.test_ranks import EVERY_KIND
from training.config import OptimiserConfig
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
    result = op(*arguments, **tree_map(inner, kwargs))
    return result if name == "_local_scalar_dense" or to_cpu else tree_map(outer, result)


def _waited(run: Callable[[], object]) -> Waits:
    """Where the host waits for the device while this runs, and how often."""
    waits.clear()
    run()
    return dict(waits)


def _model(*kinds: Any) -> LanguageModel:
    return tiny.language_model([tiny.candidates(*kinds)] * 2, dtype=torch.float32).to(ELSEWHERE)


def _state(model: LanguageModel, config: OptimiserConfig, **parts: Any) -> TrainState:
    streams = {name: model.train().initial_state(4) for name in ("weights", "alpha")}
    optimisers = {"weights": build_optimiser(model, config), **parts.pop("optimisers", {})}
    loss = torch.zeros((), dtype=torch.float64, device=ELSEWHERE)
    return TrainState(model=model, optimisers=optimisers, streams=streams, loss_sum=loss, **parts)


def _last(step: Callable[..., object], state: TrainState) -> Waits:
    """The waits of the third step."""
    found = Waits()
    for number in range(3):
        batch = tiny.batch(4, 7, seed=number, first=number == 0)
        found = _waited(partial(step, state, batch))
        state.step += 1
    return found


# torch's fused Adam does not know this device.
def training(kind: Any, optimiser: str = "lamb", rate: float = 0.0, **forward: Any) -> Waits:
    """Of a step; `rate` is that at which blocks are left out."""
    clipping = {"clip_norm": 0.3, "clip_each_norm": 0.2, "clip_value": 0.1}
    config = OptimiserConfig.model_validate(
        {"kind": optimiser, "lr": 0.01, "warmup_steps": 0, **clipping}
    )
    step = WeightStep(Forward(ELSEWHERE, "float32", **forward), config, rate_of(config, 10))
    state = _state(_model(kind), config)
    if rate:
        for module in state.model.modules():
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.1
        return _last(LayerDropoutStep(step, rate, 0), state)
    return _last(step, state)


def search(estimator: str, data: str) -> Waits:
    of_alpha = {"estimator": "soft"} if estimator == "spos" else {}
    alpha = {"warmup_fraction": 0.0, "data": data, "every": 1, **of_alpha}
    options = {"steps": 6, "optimiser": {"kind": "sgd", "lr": 0.1, "warmup_steps": 0}}
    config = SearchConfig.model_validate({**options, "estimator": estimator, "alpha": alpha})
    plan, alpha_LC = SearchPlan(config, 6, memory=5, segment=7), build_alpha(2, 3)
    optimisers = {"alpha": build_alpha_optimiser(alpha_LC, plan)}
    model, parameters = _model("attention", "dense", "identity"), {"alpha": alpha_LC}
    state = _state(model, config.optimiser, optimisers=optimisers, parameters=parameters)
    step = WeightStep(Forward(ELSEWHERE, "float32"), config.optimiser, lambda step: 0.1)
    text: Any = SimpleNamespace(batch=lambda index: tiny.batch(4, 7, seed=index))
    return _last(SearchStep(plan, step, 0, text if data == "split" else None), state)


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
    found: dict[str, Any] = {}
    for kind in EVERY_KIND:
        found[f"train {kind['kind']}"] = training(kind)
        found[f"parts {kind['kind']}"] = training(kind, micro_batches=2, recompute=True)
        found |= reading(kind)
    for optimiser in ("sgd", "adagrad"):
        found[f"train {optimiser}"] = training(EVERY_KIND[0], optimiser, rate=0.5)
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
