"""The one training loop, for search and retrain alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import Tensor

from training.state import TrainState

Metrics = Mapping[str, Tensor | float]
Hook = Callable[[TrainState, Metrics], None]


class Batch(Protocol):
    """What a stream hands out for one step: inputs, targets, and whether memories start anew."""

    @property
    def input_BT(self) -> Tensor: ...  # noqa: D102
    @property
    def target_BT(self) -> Tensor: ...  # noqa: D102
    @property
    def first(self) -> bool: ...  # noqa: D102


class Batches(Protocol):
    """Batches by index, so that a resume needs the step and nothing else."""

    def batch(self, index: int) -> Batch:
        """The batch of one step."""
        ...


Step = Callable[[TrainState, Batch], Metrics]


def train(
    state: TrainState, batches: Batches, step: Step, hooks: Sequence[Hook], until: int
) -> None:
    """Take steps until `until` are done; every hook decides for itself whether it is due."""
    state.model.train()
    while state.step < until:
        metrics = step(state, batches.batch(state.step))
        state.step += 1
        for hook in hooks:
            hook(state, metrics)
