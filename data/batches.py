"""Training batches: B contiguous streams, each continued by the next batch.

B streams, T tokens of a segment, N tokens in all, n = (N - 1) // B inputs of a stream.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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

    With a seed every epoch begins at another place of the text, whose end is followed by its
    beginning: streams, segments and the dropped remainder then differ from epoch to epoch.
    """

    def __init__(
        self, tokens: TokenArray, *, batch: int, segment: int, offset_seed: int | None = None
    ) -> None:
        """Lay B streams over the tokens.

        Args:
            tokens: the ids of the training text.
            batch: streams.
            segment: most inputs of a stream in one batch.
            offset_seed: seed of the epochs' first places; None: all begin at the first token.

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
        self._tokens = tokens
        self._start_B1 = np.arange(batch)[:, None] * self._row
        self._offset_seed = offset_seed
        self.dropped = len(tokens) - 1 - batch * self._row
        self.per_epoch = -(-self._row // segment)

    def batch(self, index: int) -> Batch:
        """Batch `index` of an endless run over the text."""
        assert index >= 0
        epoch, place = divmod(index, self.per_epoch)
        start = place * self._row // self.per_epoch
        end = (place + 1) * self._row // self.per_epoch
        # One column more than inputs: the last one is a target only.
        place_BT = self._offset(epoch) + self._start_B1 + np.arange(start, end + 1)
        token_BT = self._tokens[place_BT % len(self._tokens)]
        return Batch(
            input_BT=to_tensor(token_BT[:, :-1]),
            target_BT=to_tensor(token_BT[:, 1:]),
            first=start == 0,
        )

    def _offset(self, epoch: int) -> int:
        """Where the epoch begins in the text."""
        if self._offset_seed is None:
            return 0
        return int(np.random.default_rng([self._offset_seed, epoch]).integers(len(self._tokens)))
