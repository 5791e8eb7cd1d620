"""What a model carries from one segment of its streams to the next.

B batch   M memory length   D d_model
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


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
        cache: only while an evaluation runs: what its segments share because the weights stand
            still. The slots then remember no inputs; what a candidate made of them is its state.
        least_seen: tokens that every stream has seen at least, known without asking the device.
    """

    memory: tuple[Tensor | None, ...]
    seen_B: Tensor
    blocks: tuple[tuple[Tensor | None, ...], ...]
    cache: dict[object, Tensor] | None = None
    least_seen: int = 0

    def reset(self, which_B: Tensor | None = None) -> "StreamState":
        """Forget what some streams have seen (a bool per stream), or all of them."""
        if which_B is None:
            which_B = torch.ones_like(self.seen_B, dtype=torch.bool)
        which_B = which_B.to(self.seen_B.device)

        def cleared(tensor: Tensor | None) -> Tensor | None:
            if tensor is None:
                return None
            return tensor.masked_fill(which_B.view(-1, *[1] * (tensor.dim() - 1)), 0)

        return replace(
            self,
            memory=tuple(map(cleared, self.memory)),
            seen_B=self.seen_B.masked_fill(which_B, 0),
            blocks=tuple(tuple(map(cleared, slot)) for slot in self.blocks),
            least_seen=0,
        )

    def rows(self, which: slice) -> "StreamState":
        """The state of some of the streams."""

        def part(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[which]

        return StreamState(
            memory=tuple(map(part, self.memory)),
            seen_B=self.seen_B[which],
            blocks=tuple(tuple(map(part, slot)) for slot in self.blocks),
            least_seen=self.least_seen,
        )

    @staticmethod
    def join(parts: Sequence["StreamState"]) -> "StreamState":
        """The inverse of `rows`: the streams of all parts, in order."""
        if len(parts) == 1:
            return parts[0]

        def whole(tensors: tuple[Tensor | None, ...]) -> Tensor | None:
            found = [tensor for tensor in tensors if tensor is not None]
            assert len(found) in (0, len(parts)), "the parts ran through different blocks"
            return torch.cat(found) if found else None

        slots = zip(*(part.blocks for part in parts), strict=True)
        return StreamState(
            memory=tuple(map(whole, zip(*(part.memory for part in parts), strict=True))),
            seen_B=torch.cat([part.seen_B for part in parts]),
            blocks=tuple(tuple(map(whole, zip(*slot, strict=True))) for slot in slots),
            least_seen=min(part.least_seen for part in parts),
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
        """The inverse of `tensors`.

        Args:
            tensors: what `tensors` gave.
            like: a state of the same model for as many streams, e.g. `model.initial_state(B)`;
                it gives the slots, the shapes and the device.

        Raises:
            ValueError: the tensors are those of another model or of other streams.
        """
        expected = {"seen": like.seen_B} | {
            f"memory.{slot}": memory
            for slot, memory in enumerate(like.memory)
            if memory is not None
        }
        state_names = {
            f"blocks.{slot}.{index}"
            for slot, states in enumerate(like.blocks)
            for index in range(len(states))
        }
        differing = set(tensors) - state_names ^ set(expected)
        if differing:
            raise ValueError(f"stream state: {', '.join(sorted(differing))}: not of this model")
        for name, tensor in expected.items():
            if tensors[name].shape != tensor.shape:
                raise ValueError(
                    f"stream state: {name}: shape {tuple(tensors[name].shape)}, "
                    f"expected {tuple(tensor.shape)}"
                )
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
            least_seen=int(tensors["seen"].min()),
        )
