"""What a model would hold, found without building it: from one slot of every kind, on no device."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from model.architecture import Architecture
from model.blocks import Candidate
from model.config import SoftmaxConfig
from model.language_model import LanguageModel
from model.tying import tied_slots


@dataclass(frozen=True)
class Shapes:
    """The sizes of a model.

    Attributes:
        tensors: the shape of every tensor of its state dict.
        memory_rows: rows of memory of all slots, for one stream.
    """

    tensors: dict[str, tuple[int, ...]]
    memory_rows: int

    @property
    def parameters(self) -> int:
        """Numbers in all tensors."""
        return sum(math.prod(shape) for shape in self.tensors.values())


def shapes_of(
    slots: Sequence[Sequence[Candidate]],
    *,
    d_model: int,
    vocabulary_size: int,
    softmax: SoftmaxConfig,
    tie_slots: int | None = None,
) -> Shapes:
    """The sizes that a LanguageModel of these arguments has; thousands of slots take no time.

    Raises:
        ValueError: a cutoff is not below the vocabulary, or slots that share weights differ.
    """
    tied = tied_slots(slots, tie_slots)
    kinds = list(dict.fromkeys(tied.modules))
    with torch.device("meta"):
        small = LanguageModel(
            kinds, d_model=d_model, vocabulary_size=vocabulary_size, softmax=softmax
        )
    tensors: dict[str, tuple[int, ...]] = {}
    of_kind: list[dict[str, tuple[int, ...]]] = [{} for _ in kinds]
    for name, tensor in small.state_dict().items():
        first, _, rest = name.partition(".")
        if first == "slots":
            number, _, inner = rest.partition(".")
            of_kind[int(number)][inner] = tuple(tensor.shape)
        else:
            tensors[name] = tuple(tensor.shape)
    number_of = {kind: number for number, kind in enumerate(kinds)}
    for place, module in enumerate(tied.modules):
        for inner, shape in of_kind[number_of[module]].items():
            tensors[f"slots.{place}.{inner}"] = shape
    rows = 0
    for place, own in enumerate(tied.own):
        module = tied.modules[tied.module_of(place)]
        slot = small.slots[number_of[module]]
        rows += max((slot.block(module[index].label).memory_rows for index in own), default=0)
    return Shapes(tensors, rows)


def shapes_of_architecture(architecture: Architecture) -> Shapes:
    """The sizes of a derived model."""
    return shapes_of(
        [[candidate] for candidate in architecture.slots],
        d_model=architecture.d_model,
        vocabulary_size=architecture.vocabulary_size,
        softmax=architecture.softmax,
        tie_slots=architecture.tie_slots,
    )
