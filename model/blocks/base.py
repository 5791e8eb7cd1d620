"""What every block kind has: options, a place in the registry, and the block's contract.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, Self, cast

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_serializer
from torch import Tensor, nn

from model.state import Segment
from utils.validation import Section

# The default of an option that may be left out; `BlockOptions.completed` puts a value there.
LEFT_OUT: Any = None

_LABEL = r"^[a-z][a-z0-9_]+$"


def _as_label(text: str) -> str:
    if re.fullmatch(_LABEL, text):
        return text
    raise ValueError(
        "expected two characters or more, a to z, 0 to 9 or _, a letter first (single letters are "
        f"those of kinds), found {text!r:.60}"
    )


Label = Annotated[
    str, Field(max_length=40, json_schema_extra={"pattern": _LABEL}), AfterValidator(_as_label)
]

INIT_STD = 0.02

# Rows of numbers by name, such as one number for each head.
Numbers = Mapping[str, list[float]]

# Adds up tensors in their places over the processes that train one model.
AddUp = Callable[[Sequence[Tensor]], None]


class BlockOptions(Section):
    """One candidate: a kind, a label that is unique among the candidates, the kind's options.

    An option that is left out takes the model section's value, or where that has none of this name
    its own default (`completed`). Only what was given is ever written out, so a candidate that is
    saved and read again means the same.
    """

    # Options that no weight depends on: a trained model runs with other values too.
    adjustable: ClassVar[frozenset[str]] = frozenset()
    # Options that say how a block is computed and not what: no other network.
    same_result: ClassVar[frozenset[str]] = frozenset()

    # The option that says how many tokens a position sees, itself included; None: no option does.
    reach: ClassVar[str | None] = None

    kind: str
    label: Label

    @field_validator("label")
    @classmethod
    def _label_can_name_a_module(cls, label: str) -> str:
        if hasattr(nn.ModuleDict(), label):
            raise ValueError(f"{label!r} is a name that torch keeps for itself; choose another")
        return label

    @model_serializer
    def _given_options(self) -> dict[str, Any]:
        missing = self.missing
        return {
            name: getattr(self, name) for name in type(self).model_fields if name not in missing
        }

    @property
    def missing(self) -> list[str]:
        """The options that were left out."""
        given = {"kind", "label"} | self.model_fields_set
        return [name for name in type(self).model_fields if name not in given]

    def completed(self, d_model: int, defaults: Mapping[str, Any]) -> Self:
        """The same candidate, with `defaults` for what is missing; ValueError: sizes do not fit."""
        options = {name: getattr(self, name) for name in type(self).model_fields}
        values = options | {name: defaults.get(name, options[name]) for name in self.missing}
        try:
            return type(self).model_validate(self._derived(values, d_model))
        except ValidationError as error:
            lines = [f"{problem['loc'][0]}: {problem['msg']}" for problem in error.errors()]
            raise ValueError("\n".join(lines)) from None

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        """The values with those filled in that follow from others."""
        return values


class HeadOptions(BlockOptions):
    """Options of a candidate that works in heads."""

    n_heads: int = Field(default=LEFT_OUT, ge=1, le=4096, description="Heads.")
    d_head: int = Field(
        default=LEFT_OUT, ge=1, le=2**16, description="Width of a head (default d_model / n_heads)."
    )

    @staticmethod
    def _derived(values: dict[str, Any], d_model: int) -> dict[str, Any]:
        if values["d_head"] is not None:
            return values
        n_heads = values["n_heads"]
        if d_model % n_heads:
            raise ValueError(
                f"n_heads: {n_heads} does not divide d_model {d_model}; "
                "give d_head or another n_heads"
            )
        return {**values, "d_head": d_model // n_heads}


class Block(Protocol):
    """What a slot asks of a block.

    The block adds `delta` to the residual stream. It gets c = norm([memory; x]), with `memory_rows`
    rows of memory before the T of the segment, which says how many of them are valid. Its own state
    is None or a tensor whose first axis is the stream, zero for a stream that starts. It may have:

    - `carries_state`, in a training too: a slot that lost the state makes it anew of its memory;
    - `head_biases`, names of biases with a row for each head, which weight decay leaves alone;
    - `rate_factors`, by name multiples of the learning rate;
    - `after_step(add_up)`, done after every step of the weights by all processes. What it counts
      until then, it counts in buffers, in place; buffers that are in no file begin at 0;
    - `costliest()`, which gives it the weights of the most work: costs are taken of these;
    - `describe()`, `Numbers` for the log that follow from the weights and the last step alone.
    """

    memory_rows: int
    # Whether delta is always 0: the slot then calls neither the norm nor the block. The class says
    # so of all its blocks, which then have no parameters: their weights would be drawn too.
    adds_nothing: bool

    def __call__(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The residual delta (B, T, D), the next state, and an auxiliary loss (0-d) or None."""
        ...

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """FLOPs of the forward pass per token, 2 for a multiply-add of a matrix product."""
        ...


@dataclass(frozen=True)
class BlockKind:
    """A line of the registry; the letter stands for this kind's default candidate in a layout."""

    letter: str
    options: type[BlockOptions]
    # Makes the block from (options, d_model, dropout).
    block: Callable[..., nn.Module]
    # Whether what it adds to a position follows from earlier ones too.
    mixes_tokens: bool = True

    @property
    def adds_nothing(self) -> bool:
        """Whether its blocks add nothing: a layout is then the same network without them."""
        return cast(Block, self.block).adds_nothing


def linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """A linear layer with weights from N(0, 0.02) and biases 0."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=INIT_STD)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
