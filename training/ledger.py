"""How many bytes of tensors live while code runs, on any device."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations make while it is entered, forwards and backwards.

    It sees what operations hand over, not what a kernel takes for itself while it runs.

    Attributes:
        moments: after each operation, the bytes that live of what was made since entering.
        sizes: bytes of each storage, in the order in which they were made.
        changes: the index of each storage in this order; once more where it was freed.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moments: list[int] = []
        self.sizes: list[int] = []
        self.changes: list[int] = []
        self._live = 0
        self._known: dict[int, tuple[int, weakref.ref[Any]]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and enter what it made."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        made = {_key(tensor): tensor for tensor in _tensors((result,))}
        fresh = made.keys() - self._known.keys()
        # A view of what was there before is nothing new.
        fresh = fresh and fresh - {_key(t) for t in _tensors((*args, *kwargs.values()))}
        for key in fresh:
            self._enter(key, made[key].untyped_storage())
        self.moments.append(self._live)
        return result

    def _enter(self, key: int, storage: torch.UntypedStorage) -> None:
        size, index = storage.nbytes(), len(self.sizes)

        def freed(_: object) -> None:
            self._live -= size
            self.changes.append(index)
            del self._known[key]

        self._live += size
        self.sizes.append(size)
        self.changes.append(index)
        self._known[key] = (index, weakref.ref(storage, freed))

    def index(self, tensor: Tensor) -> int | None:
        """The index of a tensor's storage, None where it was not made since entering."""
        known = self._known.get(_key(tensor))
        return None if known is None else known[0]


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among the values and in the lists among them; operations nest no deeper."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from (inner for inner in value if isinstance(inner, Tensor))


def _key(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
