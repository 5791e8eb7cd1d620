"""What all slots share while one segment is read: which keys count, and how far away they are.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Segment:
    """T tokens of every stream; masks and encodings are made once and then shared by the slots.

    In compiled code each slot makes its own (`once`).

    Attributes:
        seen_B: tokens of each stream before the segment: so many rows of memory are valid.
        length: T.
        cache: what outlives the segment (`StreamState.cache`); None: nothing does.
        full: every row of every memory is known to hold a token, in all streams.
        path: how attention is computed (`model.paths`); None: as the device does it fastest.
        cut: the T tokens are several segments of so many, each of which sees the memory that it
            would see if it were read alone; None: they are one.
    """

    seen_B: Tensor
    length: int
    cache: dict[object, Tensor] | None = None
    full: bool = False
    path: str | None = None
    cut: int | None = None
    _made: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def cached(self) -> bool:
        """Whether blocks get x alone and keep in their state what they made of earlier tokens."""
        return self.cache is not None

    def kept(self, key: object, make: Callable[[], Tensor]) -> Tensor:
        """What `make` gives; made once for all segments of an evaluation."""
        if self.cache is None:
            return make()
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def valid(self, memory: int) -> Tensor:
        """Which of M rows of memory hold a token of the stream; (B, M)."""
        return self.once(("valid", memory), lambda: self._valid(memory))

    def mask(self, memory: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """0 where a query sees a key, -inf elsewhere; (B, T, S), or (1, T, S) if all are alike.

        Args:
            memory: M.
            window: keys that a query sees, itself included; None: all before it.
            dtype: of the result.
        """
        return self.once(("mask", memory, window, dtype), lambda: self._mask(memory, window, dtype))

    def encodings(self, memory: int, width: int, clamp: int | None, dtype: torch.dtype) -> Tensor:
        """The sinusoids of the distances S-1 ... 0; (S, width)."""
        device = self.seen_B.device
        return self.once(
            ("encodings", memory, width, clamp, dtype),
            lambda: sinusoid(memory + self.length, width, clamp=clamp, dtype=dtype, device=device),
        )

    def hides_later_keys_alone(self, memory: int, window: int | None) -> bool:
        """Whether each query sees all keys up to itself, as far as it is known without a sync."""
        return (
            self.cut is None
            and self._all_valid(memory)
            and (window is None or window >= memory + self.length)
        )

    def once(self, key: object, make: Callable[[], _Made]) -> _Made:
        """What `make` gives; made once for all slots.

        Compiled code makes it where it is read: a slot must be the same code whether it is the
        first to ask or not, and the compiler needs no memory for a mask.
        """
        if torch.compiler.is_compiling():
            return make()
        if key not in self._made:
            self._made[key] = make()
        made: _Made = self._made[key]
        return made

    def _valid(self, memory: int) -> Tensor:
        age_M = torch.arange(memory, 0, -1, device=self.seen_B.device)
        return age_M <= self.seen_B[:, None]

    def _mask(self, memory: int, window: int | None, dtype: torch.dtype) -> Tensor:
        device = self.seen_B.device
        query_T1 = torch.arange(memory, memory + self.length, device=device)[:, None]
        key_S = torch.arange(memory + self.length, device=device)
        hidden_TS = key_S > query_T1
        if window is not None:
            hidden_TS = hidden_TS | (key_S <= query_T1 - window)
        if self.cut is not None:
            within_T1 = (query_T1 - memory) % self.cut
            hidden_TS = hidden_TS | (key_S < query_T1 - memory - within_T1)
        hidden_BTS = hidden_TS[None]
        if not self._all_valid(memory):
            invalid_BS = F.pad(~self.valid(memory), (0, self.length), value=False)
            hidden_BTS = hidden_BTS | invalid_BS[:, None]
        mask_BTS = torch.zeros(hidden_BTS.shape, dtype=dtype, device=device)
        return mask_BTS.masked_fill_(hidden_BTS, -math.inf)

    def _all_valid(self, memory: int) -> bool:
        """Whether no row is hidden in any stream; false where it is not known."""
        return memory == 0 or self.full


def sinusoid(
    distances: int,
    width: int,
    *,
    dtype: torch.dtype,
    device: torch.device | None = None,
    clamp: int | None = None,
) -> Tensor:
    """Encodings of the distances S-1 ... 0, in this order: the sines and then the cosines.

    A distance above `clamp` has the encoding of `clamp`.

    The angles are computed in float32 or wider, whatever the model's dtype: in bfloat16
    neighbouring distances beyond 256 would be one.
    """
    wide = torch.promote_types(dtype, torch.float32)
    distance_S = torch.arange(distances - 1, -1, -1, dtype=wide, device=device)
    if clamp is not None:
        distance_S = distance_S.clamp(max=clamp)
    angle = angles(distance_S, width)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width].to(dtype)


def angles(distance_S: Tensor, width: int) -> Tensor:
    """What sines and cosines are taken of, in the distances' dtype; (S, (width + 1) // 2)."""
    exponent = torch.arange((width + 1) // 2, dtype=distance_S.dtype, device=distance_S.device)
    return distance_S[:, None] * 10000.0 ** -(exponent * (2 / width))
