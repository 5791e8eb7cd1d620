"""A training step on tensors without numbers: its memory, FLOPs, bytes and kernels are counted.

It is the step that a GPU would take: attention by its memory-efficient kernel, bfloat16 by
autocast, Adam in one kernel. Counted are a kernel's inputs and outputs; views are free.

B batch   T segment length
"""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from model.language_model import LanguageModel, Mix
from nas.costs.latency import TextBatch
from nas.search.config import HARD
from training.config import OptimiserConfig
from training.optim import build_optimiser
from training.state import TrainState
from training.step import Forward, WeightStep

META = torch.device("meta")
# Of one kernel over many tensors: how many it takes.
_TENSORS_OF_A_KERNEL = 36
_FREE = {"_unsafe_view", "empty", "empty_like", "empty_strided", "new_empty", "lift_fresh"}
# They read as much of their table as they write, and their first argument, or nothing of it.
_GATHER, _OVERWRITE = {"embedding", "index", "index_select", "gather"}, {"copy_", "fill_", "zero_"}
# Zeros first, and then what stands among them.
_TWO = {"slice_backward", "select_backward", "embedding_dense_backward"}
# What autocast computes in bfloat16 and in float32, as torch lists it for CUDA.
_NARROW = {
    *("linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "einsum"),
    *("conv1d", "_scaled_dot_product_efficient_attention"),
}
_WIDE = {
    *("layer_norm", "rms_norm", "softmax", "log_softmax", "cross_entropy", "cumsum", "sum", "norm"),
    *("exp", "log", "pow", "__pow__", "softplus", "logsumexp", "rsqrt", "prod", "cumprod"),
}


@dataclass
class Work:
    """A step's kernels as (FLOPs, bytes), how often one is launched, and the memory by part."""

    parameters: int
    memory: dict[str, int]
    peak_bytes: int
    kernels: list[tuple[float, int]]
    launches: int

    @property
    def flops(self) -> float:
        """Of all products."""
        return sum(flops for flops, _ in self.kernels)

    @property
    def moved_bytes(self) -> int:
        """Of all kernels but products."""
        return sum(moved for flops, moved in self.kernels if not flops)


def counted_step(
    make: Callable[[], LanguageModel],
    ids_BT: Tensor,
    forward: Forward,
    optimiser: OptimiserConfig,
    mix: Callable[[], Mix | None] = lambda: None,
) -> Work:
    """A step behind full memories and an optimiser that has begun; nothing is computed."""
    batch, counter = TextBatch(ids_BT, ids_BT), _Counter()
    with ExitStack() as stack:
        for name, pretended in _PRETENDED.items():
            stack.enter_context(mock.patch(f"torch.{name}", pretended))
        stack.enter_context(counter)
        with META:
            model = make().train()
        state = TrainState(
            model=model,
            optimisers={"weights": build_optimiser(model, optimiser)},
            streams={"weights": model.initial_state(len(ids_BT))},
            loss_sum=torch.zeros((), dtype=torch.float64, device=META),
        )
        model.nll = counter.softmax(model.nll)  # type: ignore[method-assign]
        step = WeightStep(forward, optimiser, lambda step: optimiser.lr)
        step(state, batch, mix)
        full = replace(state.streams["weights"], least_seen=model.longest_memory)
        state.streams["weights"], counter.peak = full, 0
        counter.kernels.clear()
        counter.launches = 0
        step(state, batch, mix)
    held = [tensor for one in state.optimisers["weights"].state.values() for tensor in one.values()]
    weights = sum(weight.nbytes for weight in model.parameters())
    memory = {
        "weights": weights,
        "gradients": weights,
        "moments": sum(tensor.nbytes for tensor in held if tensor.dim()),
        "streams": sum(tensor.nbytes for tensor in full.tensors().values()),
        **counter.kept,
    }
    numbers = sum(weight.numel() for weight in model.parameters())
    return Work(numbers, memory, counter.peak, counter.kernels, counter.launches)


def pretended_mix(estimator: str, slots: int, candidates: int) -> Mix:
    """A mix of as many candidates a slot as alpha's estimator computes, each in turn."""
    count = min(HARD.get(estimator) or candidates, candidates)
    weight = torch.ones((), device=META, requires_grad=True)
    return [[((slot + k) % candidates, weight) for k in range(count)] for slot in range(slots)]


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _bytes(tensors: Sequence[Tensor]) -> int:
    """Of the device's own tensors; an expanded one is read once."""
    sizes = ((one.nbytes, one.untyped_storage().nbytes()) for one in tensors if one.is_meta)
    return sum(map(min, sizes))


def _moved(name: str, read: Sequence[Tensor], written: Sequence[Tensor]) -> int:
    if name in _GATHER:
        return 2 * _bytes(written)
    read = read[1:] if name in _OVERWRITE else read
    return _bytes(written) + _bytes(read) * (1 + (name in _TWO))


@dataclass
class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the memory of tensors without numbers, and notes every kernel."""

    kernels: list[tuple[float, int]] = field(default_factory=list)
    launches: int = 0
    live: int = 0
    peak: int = 0
    kept: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: set[int] = set()

    def softmax(self, nll: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The same function, and what is kept when it is called and when it is done."""
        begun = self.live

        def followed(*inputs: Tensor) -> Tensor:
            before = self.live
            nats = nll(*inputs)
            self.kept = {"activations": before - begun, "softmax": self.live - before}
            return nats

        return followed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        # The device without numbers has no such kernel: it moves in place, and makes nothing.
        out = None if name.startswith("_fused_adam") else func(*args, **kwargs)
        made = [tensor for tensor in _tensors([out]) if tensor.is_meta]
        for tensor in made:
            self._follow(tensor.untyped_storage())
        in_one = name.startswith(("_foreach", "_fused"))
        if in_one or (made and not func.is_view and name not in _FREE):
            # A kernel over many tensors changes them in place, and returns none of them.
            pairs = zip(func._schema.arguments, args, strict=False)
            changed = [value for argument, value in pairs if argument.is_write] if in_one else []
            read = list(_tensors([*args, *kwargs.values()]))
            moved = _moved(name, read, made or list(_tensors(changed)))
            count = flop_registry.get(func._overloadpacket)
            flops = 0.0 if count is None else float(count(*args, **kwargs, out_val=out))
            self.kernels.append((flops, moved))
            many = max((len(value) for value in args if isinstance(value, list | tuple)), default=1)
            each = math.ceil(many / _TENSORS_OF_A_KERNEL)
            self.launches += each if in_one else 1 + (name in _TWO)
        return out

    def _follow(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._known:
            return
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)

        def gone() -> None:
            self._known.discard(key)
            self.live -= size

        weakref.finalize(storage, gone)


def _dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """F.dropout by one kernel."""
    return torch.native_dropout(x, p, True)[0] if training else x


def _attention(
    q: Tensor,
    k: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """F.scaled_dot_product_attention by the kernel that takes a bias which learns."""
    bias = None if attn_mask is None else attn_mask.expand(*q.shape[:3], k.shape[2])
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    out: Tensor = kernel(q, k, value, bias, True, dropout_p, False, scale=scale)[0]
    return out


def _rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """F.rms_norm by one kernel, which reads and writes what that of LayerNorm does."""
    return torch.nn.functional.layer_norm(x, shape, weight, None, 1e-5 if eps is None else eps)


class _Autocast(TorchFunctionMode):
    """torch.autocast for the device without numbers, which torch's own refuses."""

    within: ClassVar[list["_Autocast"]] = []

    def __init__(
        self, _: str, dtype: torch.dtype = torch.bfloat16, enabled: bool = True, **__: object
    ) -> None:
        super().__init__()
        self.dtype = dtype if enabled else None
        # Weights are cast once.
        self.cast: dict[int, tuple[Tensor, Tensor]] = {}

    @classmethod
    def is_autocast_enabled(cls, device: str | None = None) -> bool:
        return bool(cls.within) and cls.within[-1].dtype is not None

    @classmethod
    def get_autocast_dtype(cls, device: str) -> torch.dtype:
        return (cls.within[-1].dtype if cls.within else None) or torch.bfloat16

    def __enter__(self) -> Self:
        self.within.append(self)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.within.pop()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if self is not self.within[-1] or self.dtype is None or name not in _NARROW | _WIDE:
            return func(*args, **kwargs)
        dtype = self.dtype if name in _NARROW else torch.float32
        args = [self._to(value, dtype) for value in args]
        return func(*args, **{key: self._to(value, dtype) for key, value in kwargs.items()})

    def _to(self, value: Any, dtype: torch.dtype) -> Any:
        wanted = torch.float32 if dtype == self.dtype else self.dtype
        if not isinstance(value, Tensor) or not value.is_meta or value.dtype != wanted:
            return value
        if not value.is_leaf or not value.requires_grad:
            return value.to(dtype)
        if id(value) not in self.cast:
            self.cast[id(value)] = (value, value.to(dtype))
        return self.cast[id(value)][1]


# Stand for torch's own. The last two say whether a device has a kernel over many tensors; a mock
# would keep what they are called with, so all gradients.
_PRETENDED = {
    "autocast": _Autocast,
    "amp.autocast": _Autocast,
    "is_autocast_enabled": _Autocast.is_autocast_enabled,
    "get_autocast_dtype": _Autocast.get_autocast_dtype,
    "nn.functional.dropout": _dropout,
    "nn.functional.rms_norm": _rms_norm,
    "nn.functional.scaled_dot_product_attention": _attention,
    "nn.utils.clip_grad._has_foreach_support": lambda *_: True,
    "optim.adam._device_dtype_check_for_fused": lambda *_: None,
}
