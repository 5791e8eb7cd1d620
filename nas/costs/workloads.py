"""What is timed of a model: reading a segment, the next token, a step of training.

B batch   T segment length
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from model import LanguageModel, StreamState
from training.config import OptimiserConfig
from training.optim import build_optimiser
from training.state import TrainState
from training.step import Forward, WeightStep

Pass = Callable[[], object]


@dataclass(frozen=True)
class TextBatch:
    """The same tokens at every step."""

    input_BT: Tensor
    target_BT: Tensor
    first: bool = False


@dataclass(frozen=True)
class Shapes:
    """What the passes read, and how they are computed.

    Attributes:
        ids_BT: a segment of real text for `latency`; its first tokens for `decode`.
        many_BT: a segment of the streams of a training batch.
        forward: device, precision and kernels of a training step; others: its device.
        optimiser: that of the retraining.
    """

    ids_BT: Tensor
    many_BT: Tensor
    forward: Forward
    optimiser: OptimiserConfig

    @property
    def device(self) -> torch.device:
        """Where the models lie."""
        return self.forward.device

    def key(self, workload: str) -> dict[str, str | int]:
        """What a time of a workload holds for, beside the model."""
        batch, segment = (self.ids_BT if workload in FEW_STREAMS else self.many_BT).shape
        cuda = self.device.type == "cuda"
        return {
            "device": torch.cuda.get_device_name(self.device) if cuda else "cpu",
            "threads": torch.get_num_threads(),
            "dtype": dtype_of(workload, self.forward.precision),
            "batch": batch,
            "segment": 1 if workload == "decode" else segment,
            "torch": torch.__version__,
        }


# Those that read `Shapes.ids_BT`.
FEW_STREAMS = ("latency", "decode")


def dtype_of(workload: str, precision: str) -> str:
    """In what a workload is computed: texts are read in float32 whatever `run.precision` is."""
    return precision if workload == "train_step" else "float32"


def prefill(model: LanguageModel, shapes: Shapes) -> Pass:
    """One segment of `ids_BT` behind a full memory: forward and loss."""
    return _reading(model, shapes.ids_BT)


def throughput(model: LanguageModel, shapes: Shapes) -> Pass:
    """One segment of every stream of a training batch behind a full memory: forward and loss."""
    return _reading(model, shapes.many_BT)


def _reading(model: LanguageModel, ids_BT: Tensor) -> Pass:
    state = _full(model, ids_BT, model.initial_state(len(ids_BT)))

    @torch.inference_mode()
    def read() -> None:
        h_BTD, _, _ = model(ids_BT, state)
        model.nll(h_BTD, ids_BT)

    read()
    return read


def decode(model: LanguageModel, shapes: Shapes) -> Pass:
    """One token of each stream behind a full cache, and the probabilities of the next one."""
    ids_BT = shapes.ids_BT
    state = _full(model, ids_BT, model.initial_state(len(ids_BT), cached=True))

    @torch.inference_mode()
    def read() -> None:
        nonlocal state
        # A state is read on from once: its rows would be written over.
        h_B1D, state, _ = model(ids_BT[:, :1], state)
        model.log_prob(h_B1D)

    read()
    return read


@torch.inference_mode()
def _full(model: LanguageModel, ids_BT: Tensor, state: StreamState) -> StreamState:
    """A state whose memories are full."""
    model.eval()
    for _ in range(2 + model.longest_memory // ids_BT.shape[1]):
        _, state, _ = model(ids_BT, state)
    return state


def train_step(model: LanguageModel, shapes: Shapes) -> Pass:
    """A step of the weights as the retraining takes it; its learning rate is 0."""
    model.train()
    state = TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, shapes.optimiser)},
        streams={"weights": model.initial_state(len(shapes.many_BT))},
        loss_sum=torch.zeros((), dtype=torch.float64, device=shapes.device),
    )
    step = WeightStep(shapes.forward, shapes.optimiser, lambda step: 0.0)
    batch = TextBatch(shapes.many_BT, shapes.many_BT)
    for _ in range(2 + math.ceil(model.longest_memory / shapes.many_BT.shape[1])):
        step(state, batch)
    return partial(step, state, batch)


# By the name of the cost that it measures.
WORKLOADS: dict[str, Callable[[LanguageModel, Shapes], Pass]] = {
    "latency": prefill,
    "decode": decode,
    "train_step": train_step,
    "throughput": throughput,
}
