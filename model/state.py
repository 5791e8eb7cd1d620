"""What streams carry from segment to segment, and what all slots share while one is read.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

_Made = TypeVar("_Made")

# Cosines and sines of the angles by which rotary positions turn pairs of channels.
Turns = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class StreamState:
    """The state of B streams; no tensor of it carries a gradient.

    Attributes:
        memory: per slot the inputs before the segment (B, M, D), a buffer of fixed length whose
            first rows are not valid yet; None where no candidate reads memory.
        seen_B: tokens since each stream was reset (int64). Row m of M is valid iff
            m >= M - seen.
        blocks: per slot the candidates' own states, the stream on the first axis, zero for a
            stream that starts; None where there is none (yet).
        cache: of a model whose weights stand still (an evaluation, a teacher): what its segments
            share. The blocks' states then stand for the memory, of which `token_shift` keeps the
            last row.
        least_seen: tokens that every stream has seen at least, known without asking the device.
    """

    memory: tuple[Tensor | None, ...]
    seen_B: Tensor
    blocks: tuple[tuple[Tensor | None, ...], ...]
    cache: dict[object, Tensor] | None = None
    least_seen: int = 0

    def reset(self) -> "StreamState":
        """Forget what the streams have seen."""
        return replace(self._changed(torch.zeros_like), least_seen=0)

    def rows(self, which: slice | Tensor) -> "StreamState":
        """The state of some of the streams; of those whose numbers a tensor holds, as a copy."""
        return self._changed(lambda tensor: tensor[which])

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "StreamState":
        def changed(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        return replace(
            self,
            memory=tuple(map(changed, self.memory)),
            seen_B=change(self.seen_B),
            blocks=tuple(tuple(map(changed, slot)) for slot in self.blocks),
        )

    @staticmethod
    def join(parts: Sequence["StreamState"]) -> "StreamState":
        """The inverse of `rows`: the streams of all parts, in order."""
        if len(parts) == 1:
            return parts[0]

        def whole(tensors: tuple[Tensor | None, ...]) -> Tensor | None:
            present = [tensor for tensor in tensors if tensor is not None]
            assert len(present) in (0, len(parts)), "the parts ran through different blocks"
            return torch.cat(present) if present else None

        slots = zip(*(part.blocks for part in parts), strict=True)
        return StreamState(
            memory=tuple(map(whole, zip(*(part.memory for part in parts), strict=True))),
            seen_B=torch.cat([part.seen_B for part in parts]),
            blocks=tuple(tuple(map(whole, zip(*slot, strict=True))) for slot in slots),
            least_seen=min(part.least_seen for part in parts),
            cache=parts[0].cache,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Copies of all tensors by name, for a checkpoint."""
        named = {f"memory.{slot}": memory for slot, memory in enumerate(self.memory)}
        for slot, states in enumerate(self.blocks):
            named |= {f"blocks.{slot}.{index}": state for index, state in enumerate(states)}
        copies = {name: tensor.clone() for name, tensor in named.items() if tensor is not None}
        return {"seen": self.seen_B.clone(), **copies}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], like: "StreamState") -> "StreamState":
        """The inverse of `tensors`, for tensors that fit (`training.checkpoint` compares them).

        `like` is a state of the same model for as many streams, e.g. `model.initial_state(B)`; it
        gives the slots and the device.
        """
        # Copies: tensors that come from a file may be views of it.
        device = like.seen_B.device
        moved = {name: tensor.to(device, copy=True) for name, tensor in tensors.items()}
        return StreamState(
            memory=tuple(moved.get(f"memory.{slot}") for slot in range(len(like.memory))),
            seen_B=moved["seen"],
            blocks=tuple(
                tuple(moved.get(f"blocks.{slot}.{index}") for index in range(len(states)))
                for slot, states in enumerate(like.blocks)
            ),
            # Made anew where it is asked for.
            cache=None if like.cache is None else {},
            least_seen=int(tensors["seen"].min()),
        )


@dataclass(frozen=True)
class Segment:
    """T tokens of every stream; masks and encodings are made once and then shared by the slots.

    Attributes:
        seen_B: tokens of each stream before the segment: so many rows of memory are valid.
        length: T.
        cache: what outlives the segment (`StreamState.cache`); None: nothing does.
        full: every row of every memory is known to hold a token, in all streams.
        kernel: of attention (`model.attention_kernels`); None: the device's fastest.
        padded: `seen_B` may be negative: so many of the first tokens are none.
        chunk: the T tokens are several segments of so many, each of which sees the memory that it
            would see if it were read alone; None: they are one.
    """

    seen_B: Tensor
    length: int
    cache: dict[object, Tensor] | None = None
    full: bool = False
    kernel: str | None = None
    chunk: int | None = None
    padded: bool = False
    _made: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def cached(self) -> bool:
        """Whether blocks get x alone and keep in their state what they made of earlier tokens."""
        return self.cache is not None

    def once_per_evaluation(self, key: object, make: Callable[[], Tensor]) -> Tensor:
        """What `make` gives; made once for all segments of an evaluation."""
        if self.cache is None:
            return make()
        if key not in self.cache:
            self.cache[key] = make()
        return self.cache[key]

    def mask(self, memory: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """0 where a query sees a key, -inf elsewhere; (B, T, S), or (1, T, S) if all are alike.

        A query sees `window` keys, itself included, or all before it.
        """
        return self.once(("mask", memory, window, dtype), lambda: self._mask(memory, window, dtype))

    def encodings(self, memory: int, width: int, clamp: int | None, dtype: torch.dtype) -> Tensor:
        """The sinusoids of the distances S-1 ... 0; (S, width)."""
        device = self.seen_B.device
        return self.once(
            ("encodings", memory, width, clamp, dtype),
            lambda: sinusoid(memory + self.length, width, clamp=clamp, dtype=dtype, device=device),
        )

    def turns(self, memory: int, width: int, dtype: torch.dtype) -> Turns:
        """Of positions in the memory and the segment; (B, S, 1, width / 2), float32 at least.

        They are each stream's own in an evaluation, which keeps turned keys; else B is 1.
        """
        place_S = torch.arange(memory + self.length, device=self.seen_B.device)
        place_BS = place_S + (self.seen_B[:, None] - memory) if self.cached else place_S[None]
        key = ("turns", memory, width, dtype)
        return self.once(key, lambda: turns_at(place_BS, width, dtype))

    def before(self, rows: int) -> "Segment":
        """The last rows of the memory as a segment that streams begin with."""

        def made() -> Segment:
            return Segment(
                self.seen_B.clamp(max=rows) - rows, rows, kernel=self.kernel, padded=not self.full
            )

        return self.once(("before", rows), made)

    def without_padding(self, rows: Tensor, *, axis: int) -> Tensor:
        """The rows, of which `axis` has the T tokens, with 0 in those that are none."""
        if not self.padded:
            return rows
        is_none_BT = torch.arange(self.length, device=rows.device) < -self.seen_B[:, None]
        shape = [1] * rows.dim()
        shape[0], shape[axis] = is_none_BT.shape
        return rows.masked_fill(is_none_BT.view(shape), 0.0)

    def without_invalid(self, rows_BSD: Tensor, memory: int) -> Tensor:
        """The rows with 0 in those of the memory that hold no token of the stream yet.

        They are the memory's, and the segment's where they are there.
        """
        if not memory or self.full:
            return rows_BSD
        invalid_BS = self.once(("invalid", memory), lambda: self._invalid(memory))
        return rows_BSD.masked_fill(invalid_BS[:, : rows_BSD.shape[1], None], 0.0)

    def once(self, key: object, make: Callable[[], _Made]) -> _Made:
        """What `make` gives; made once for all slots."""
        # Compiled code makes it where it is read: a slot must be the same code whether it is the
        # first to ask or not, and the compiler needs no memory for a mask.
        if torch.compiler.is_compiling():
            return make()
        if key not in self._made:
            self._made[key] = make()
        made: _Made = self._made[key]
        return made

    def _mask(self, memory: int, window: int | None, dtype: torch.dtype) -> Tensor:
        device = self.seen_B.device
        query_T1 = torch.arange(memory, memory + self.length, device=device)[:, None]
        key_S = torch.arange(memory + self.length, device=device)
        hidden_TS = key_S > query_T1
        if window is not None:
            hidden_TS = hidden_TS | (key_S <= query_T1 - window)
        if self.chunk is not None:
            within_T1 = (query_T1 - memory) % self.chunk
            hidden_TS = hidden_TS | (key_S < query_T1 - memory - within_T1)
        hidden_BTS = hidden_TS[None]
        if memory and not self.full:
            hidden_BTS = hidden_BTS | self._invalid(memory)[:, None]
        mask_BTS = torch.zeros(hidden_BTS.shape, dtype=dtype, device=device)
        return mask_BTS.masked_fill_(hidden_BTS, -math.inf)

    def _invalid(self, memory: int) -> Tensor:
        """Whether a row holds no token of the stream yet; (B, S)."""
        age_M = torch.arange(memory, 0, -1, device=self.seen_B.device)
        return F.pad(age_M > self.seen_B[:, None], (0, self.length), value=False)


def sinusoid(
    distances: int,
    width: int,
    *,
    dtype: torch.dtype,
    device: torch.device | None = None,
    clamp: int | None = None,
) -> Tensor:
    """Encodings of the distances S-1 ... 0, in this order: the sines and then the cosines.

    A distance above `clamp` has the encoding of `clamp`. The angles are computed in float32 or
    wider, whatever the model's dtype: in bfloat16 neighbouring distances beyond 256 would be one.
    """
    wide = torch.promote_types(dtype, torch.float32)
    distance_S = torch.arange(distances - 1, -1, -1, dtype=wide, device=device)
    if clamp is not None:
        distance_S = distance_S.clamp(max=clamp)
    return sinusoid_at(distance_S, width).to(dtype)


def sinusoid_at(distance_S: Tensor, width: int) -> Tensor:
    """Encodings of these distances, in their dtype; (S, width)."""
    exponent = torch.arange((width + 1) // 2, dtype=distance_S.dtype, device=distance_S.device)
    angle = distance_S[:, None] * 10000.0 ** -(exponent * (2 / width))
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width]


def turns_at(place_BS: Tensor, width: int, dtype: torch.dtype) -> Turns:
    """Of the angles p 10000^(-2 i / width) for the pair i; in float64, as streams may be long."""
    wide = torch.promote_types(dtype, torch.float32)
    pair = torch.arange(width // 2, dtype=torch.float64, device=place_BS.device)
    angle_BS1K = place_BS[..., None, None] * 10000.0 ** (pair * (-2 / width))
    return angle_BS1K.cos().to(wide), angle_BS1K.sin().to(wide)
