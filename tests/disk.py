"""A disk that fails at its n-th change and at every later one: full, or its process killed."""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest


class FullDisk:
    """Counts what changes the disk below a folder; from the n-th time on there is no room.

    The n-th change, where it is a write, has put half of its bytes there, as a system's own would.
    """

    calls: tuple[str, ...] = ("mkdir", "rename", "replace")

    def __init__(self, folder: Path, n: int) -> None:
        self.folder, self.n, self.count = folder, n, 0

    @property
    def failed(self) -> bool:
        return self.count >= self.n

    def error(self, path: Any) -> BaseException:
        return OSError(errno.ENOSPC, "No space left on device", path)

    def change(self, path: Any, half: Callable[[], object] = lambda: None) -> None:
        self.count += 1
        if self.count == self.n:
            half()
        if self.failed:
            raise self.error(path)

    def has(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and Path(path).is_relative_to(self.folder)

    @contextmanager
    def installed(self) -> Iterator[Self]:
        really_open = io.open

        def opened(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            if not (self.has(file) and set(mode) & set("wax+")):
                return really_open(file, mode, *rest, **more)
            self.change(file)
            return _File(really_open(file, mode, *rest, **more), self)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(io, "open", opened)
            patched.setattr(builtins, "open", opened)
            for name in (*self.calls, "fsync"):
                patched.setattr(os, name, self._counted(getattr(os, name)))
            yield self

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Any, *rest: Any, **more: Any) -> Any:
            if isinstance(path, int):  # a file to be synced, of which no error knows the path
                self.change(None)
            elif self.has(path):
                self.change(path)
            return call(path, *rest, **more)

        return counted


class Killed(BaseException):
    """Nothing of the process changes the disk any more, not what cleans up either."""


class KilledProcess(FullDisk):
    """A process that is killed at its n-th change, which a removal is as well."""

    calls = (*FullDisk.calls, "unlink")

    def error(self, path: Any) -> BaseException:
        return Killed()


class _File:
    """A file that is written; its errors name no path, as a system's own do not."""

    def __init__(self, file: Any, disk: FullDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> int:
        self._disk.change(None, lambda: self._file.write(data[: len(data) // 2]))
        return int(self._file.write(data))

    def writelines(self, parts: Any) -> None:
        self._disk.change(None, lambda: self._file.writelines(parts[: len(parts) // 2]))
        self._file.writelines(parts)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
