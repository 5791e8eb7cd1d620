"""Methods that choose a network by training some: what they are given, and what they answer.

N networks   L slots   K kinds
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Kinds = NDArray[np.int8]
Length = Literal["half", "full"]
# In a row of kinds: no block.
NONE = -1


@dataclass(frozen=True, order=True)
class Training:
    """One training of a network of the space, by its number; half length has its own schedule."""

    network: int
    length: Length
    seed: int


@dataclass(frozen=True)
class Space:
    """The networks that a method chooses among.

    Attributes:
        kind_NL: the kinds of a network's blocks, in order, then `NONE`; what adds nothing is left
            out.
        kinds: names of the kinds; the last one is the reference of the features.
        flops_N: of a forward pass per token, by which trainings are paid.
        rules: the networks that rules name.
        proposed: the networks that a search proposes, the best first.
    """

    kind_NL: Kinds
    kinds: tuple[str, ...]
    flops_N: Array
    rules: Mapping[str, int] = field(default_factory=dict)
    proposed: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.kind_NL)

    def cost(self, training: Training) -> float:
        """In full trainings of a network of mean cost."""
        share = 0.5 if training.length == "half" else 1.0
        return share * float(self.flops_N[training.network] / self.flops_N.mean())

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        # Where slots share weights several networks may have these blocks: the first one counts.
        rows = reversed([*enumerate(self.kind_NL)])
        return {row_L.tobytes(): number for number, row_L in rows}

    def number_of(self, row: Sequence[int]) -> int | None:
        """The number of the network with these kinds of blocks; None where there is none."""
        padded_L = np.full(self.kind_NL.shape[1], NONE, dtype=np.int8)
        if len(row) > len(padded_L):
            return None
        padded_L[: len(row)] = row
        return self._numbers.get(padded_L.tobytes())


@dataclass(frozen=True)
class Answer:
    """The network that a method chose.

    Attributes:
        network: its number.
        finalists: those of the last choice, the best first; empty where there was none.
        best_rule: the best network among them that a rule names; None where there is none.
        lead: by how many nats the chosen one is expected to be better than that, and the standard
            deviation of this.
    """

    network: int
    finalists: tuple[int, ...] = ()
    best_rule: int | None = None
    lead: tuple[float, float] = (0.0, 0.0)


Results = Mapping[Training, float]


class Method(Protocol):
    """Asks for trainings until it has an answer; a pure function of what has been trained."""

    def __call__(self, space: Space, results: Results) -> Sequence[Training] | Answer:
        """What to train next, all of it missing in the results, or the answer.

        Results are validation nats; of a training that diverged they are infinite.
        """
