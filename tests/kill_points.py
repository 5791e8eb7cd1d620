"""A process that is killed right before its n-th change of the disk."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Killed(BaseException):
    """Nothing of the process changes the disk any more, not what cleans up either."""


@contextmanager
def killed_before(n: int, folder: Path) -> Iterator[list[str]]:
    """Raise Killed before the n-th change below a folder, and before every later one.

    Yields:
        The changes that were made or tried, by name; there are n of them once it was killed.
    """
    changes: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *rest: Any, **more: Any) -> Any:
            if isinstance(path, int) or Path(path).is_relative_to(folder):
                if len(changes) < n:
                    changes.append(f"{name} {path}")
                if len(changes) == n:
                    raise Killed
            return call(path, *rest, **more)

        return change

    really_open = io.open
    for_writing = counted("open", really_open)

    def opened(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        call = for_writing if set(mode) & set("wax+") else really_open
        return call(file, mode, *rest, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(io, "open", opened)
        for name in ("mkdir", "rename", "replace", "unlink", "fsync"):
            patched.setattr(os, name, counted(name, getattr(os, name)))
        yield changes
