"""What stands in the modelling file in the place of names of `model/` that need other packages.

Of pydantic, which checks options where they are read, and of numpy.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """One candidate: a kind, a label, and every option of the kind."""

    missing: ClassVar[tuple[str, ...]] = ()

    kind: str
    label: str


Candidate = BlockOptions


@dataclass(frozen=True)
class BlockKind:
    """A line of the registry."""

    letter: str
    options: type[BlockOptions]
    block: Any


@dataclass(frozen=True, kw_only=True)
class SoftmaxConfig:
    """Adaptive softmax: the first id of each tail, the tails' widths; without them a plain one."""

    cutoffs: tuple[int, ...]
    sizes: tuple[int, ...]
    tied: bool

    def check_vocabulary(self, vocabulary_size: int) -> None:
        """Checked where the model was exported."""

    def tail_widths(self, head_width: int) -> tuple[int, ...]:
        """The width of each tail."""
        return self.sizes


def keep(like: Tensor, rate: float) -> tuple[Tensor, float]:
    """0 with probability `rate`, else 1, in the shape and dtype of a tensor; 1 / (1 - rate)."""
    return torch.empty_like(like).bernoulli_(1.0 - rate), 1.0 / (1.0 - rate)
