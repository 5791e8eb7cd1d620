"""The state of a run at one moment, and the types of the training loop (`Trainer.run`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from model.state import StreamState

if TYPE_CHECKING:
    from model.language_model import LanguageModel

Metrics = Mapping[str, Tensor | float]


@dataclass(frozen=True)
class Best:
    """The best validation so far; its step is -1 before the first."""

    nats_per_token: float = float("inf")
    step: int = -1


@dataclass
class TrainState:
    """One home for everything that changes from step to step.

    Attributes:
        optimisers: by name; "weights" always, "alpha" in a search.
        streams: memories of this process's streams, carried from batch to batch, by name.
        parameters: trained parameters outside the model (alpha).
        multipliers: weights of constraints on those, which learn by a rule of their own.
        loss_sum: sum of the losses since the last line of the log, in nats.
        kl_sum: the same of the distances from a teacher; None: there is none.
        loss_steps: how many they are.
        validations: how many there were; the best step is the best of so many.
        elapsed_s: seconds of training before this process.
    """

    model: "LanguageModel"
    optimisers: dict[str, torch.optim.Optimizer]
    streams: dict[str, StreamState]
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)
    multipliers: dict[str, Tensor] = field(default_factory=dict)
    step: int = 0
    loss_sum: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    kl_sum: Tensor | None = None
    loss_steps: int = 0
    tokens: int = 0
    best: Best = Best()
    validations: int = 0
    elapsed_s: float = 0.0


Hook = Callable[[TrainState, Metrics], None]


class Batch(Protocol):
    """What a stream hands out for one step: inputs, targets, and whether memories start anew."""

    input_BT: Tensor
    target_BT: Tensor
    first: bool


class Batches(Protocol):
    """Batches by index, so that a resume needs the step and nothing else."""

    def batch(self, index: int) -> Batch:
        """The batch of one step."""
        ...


Step = Callable[[TrainState, Batch], Metrics]
