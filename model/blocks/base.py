"""What a slot asks of every block, and its linear layers.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from torch import Tensor, nn

from model.state import Segment

INIT_STD = 0.02
NORM_EPS = 1e-5

# Rows of numbers by name, such as one number for each head.
Numbers = Mapping[str, list[float]]

# Adds up tensors in their places over the processes that train one model.
AddUp = Callable[[Sequence[Tensor]], None]


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
        """FLOPs of the forward pass per token, 2 for a multiply-add of a matrix product.

        So many rows of `memory` are projected anew: those of the block, or none where it keeps
        what it made of them.
        """
        ...


def linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """A linear layer with weights from N(0, 0.02) and biases 0."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=INIT_STD)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
