"""Where training sets numbers to 0, and how many of them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dropout:
    """The part of the numbers that training drops, by place; 0 drops nothing.

    Attributes:
        residual: of what each slot adds, and of the input of the softmax.
        embedding: of the embeddings.
        attention: of the attention weights.
        dense: of the inner layer of a dense block.
    """

    residual: float = 0.0
    embedding: float = 0.0
    attention: float = 0.0
    dense: float = 0.0


NO_DROPOUT = Dropout()
