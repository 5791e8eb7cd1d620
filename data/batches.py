"""Training batches: B contiguous streams, each continued by the next batch.

B streams, T tokens of a segment, N tokens in all, n = (N - 1) // B inputs of a stream.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from data.tensors import to_tensor
from data.tokens import TokenArray

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """One segment of every stream. `first`: an epoch starts, memory must be reset."""

    input_BT: "Tensor"
    target_BT: "Tensor"
    first: bool


class ContextBatches:
    """Batches as a pure function of their index, so a resume needs no iterator state.

    Stream b reads tokens [b n, b n + n); every target is the token after its input in the text.
    The remainder of fewer than B tokens is never a target (`dropped`). An epoch is cut into as few
    batches as segments of T allow, whose widths differ by at most one: a last batch of a few
    columns would get a whole step of the optimiser.
    """

    def __init__(self, tokens: TokenArray, *, batch: int, segment: int) -> None:
        """Lay B streams over the tokens.

        Raises:
            ValueError: there are not enough tokens for one input in each stream.
        """
        assert batch >= 1
        assert segment >= 1
        self._row = (len(tokens) - 1) // batch
        if self._row < 1:
            raise ValueError(
                f"data.batch: {batch} streams need at least {batch + 1} training tokens, "
                f"but the text has {len(tokens)}; use a smaller batch or more text"
            )
        used = batch * self._row
        self._input_BN = tokens[:used].reshape(batch, self._row)
        self._target_BN = tokens[1 : used + 1].reshape(batch, self._row)
        self.dropped = len(tokens) - 1 - used
        self.per_epoch = -(-self._row // segment)

    def batch(self, index: int) -> Batch:
        """Batch `index` of an endless run over the text."""
        assert index >= 0
        place = index % self.per_epoch
        start = place * self._row // self.per_epoch
        columns = slice(start, (place + 1) * self._row // self.per_epoch)
        return Batch(
            input_BT=to_tensor(self._input_BN[:, columns]),
            target_BT=to_tensor(self._target_BN[:, columns]),
            first=start == 0,
        )
