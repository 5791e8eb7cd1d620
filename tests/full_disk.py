"""A disk that is full from its n-th write on."""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class FullDisk:
    """Counts what changes the disk below a folder; from the n-th time on there is no room.

    A write that fails has put half of its bytes there, as a system's own would.
    """

    def __init__(self, folder: Path, n: int) -> None:
        self.folder, self.n, self.count = folder, n, 0

    @property
    def was_full(self) -> bool:
        return self.count >= self.n

    def take(self, path: Any, before: Callable[[], object] = lambda: None) -> None:
        self.count += 1
        if self.was_full:
            before()
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def has(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and Path(path).is_relative_to(self.folder)

    @contextmanager
    def installed(self) -> Iterator["FullDisk"]:
        with pytest.MonkeyPatch.context() as patched:
            really_open = io.open

            def opened(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
                if not (self.has(file) and set(mode) & set("wax+")):
                    return really_open(file, mode, *rest, **more)
                self.take(file)
                return _File(really_open(file, mode, *rest, **more), self)

            patched.setattr(io, "open", opened)
            patched.setattr(builtins, "open", opened)
            for name in ("mkdir", "rename", "replace"):
                patched.setattr(os, name, self._counted(getattr(os, name)))
            fsync = os.fsync

            def synced(number: int) -> None:
                self.take(None)
                fsync(number)

            patched.setattr(os, "fsync", synced)
            yield self

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Any, *rest: Any, **more: Any) -> Any:
            if self.has(path):
                self.take(path)
            return call(path, *rest, **more)

        return counted


class _File:
    """A file that is written; its errors name no path, as a system's own do not."""

    def __init__(self, file: Any, disk: FullDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        self._disk.take(None, lambda: self._file.write(data[: len(data) // 2]))
        return int(self._file.write(data))

    def writelines(self, parts: Any) -> None:
        self._disk.take(None, lambda: self._file.writelines(parts[: len(parts) // 2]))
        self._file.writelines(parts)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
