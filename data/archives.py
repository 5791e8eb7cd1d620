"""One member of an archive as a bounded stream. Nothing is ever unpacked to a path.

An archive with a name that could leave a folder, a link or a device in it is refused whole: no
honest one among our corpora has any.
"""

import gzip
import io
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, tarfile.TarError,
           NotImplementedError)  # fmt: skip
# What a zip made elsewhere than on Unix says about a member's type: nothing.
_UNKNOWN_TYPE = 0
_ENCRYPTED = 1


class ArchiveError(ValueError):
    """An archive that is damaged, hostile, or without the member."""


@contextmanager
def open_member(archive: Path, member: str, *, limit: int) -> Iterator[BinaryIO]:
    """Read one member of a .zip, .tar, .tar.gz, .tgz or .gz file.

    Args:
        archive: the file; its suffix says what it is.
        member: the exact name of the member; a .gz file has only one, which has no name.
        limit: the most bytes that may come out; of a tar this counts everything up to the member.

    Raises:
        ArchiveError: on entry or while reading: see the class.
        OSError: the file cannot be read.
    """
    reader = {".zip": _zip, ".tar": _tar, ".gz": _gzip, ".tgz": _tar_gzip}
    kind = ".tgz" if archive.name.endswith(".tar.gz") else archive.suffix
    assert kind in reader, f"{archive.name}: no archive that we know"
    try:
        with reader[kind](archive, member, limit) as stream:
            yield stream
    except ArchiveError as error:
        raise ArchiveError(f"{archive}: {error}; delete it and run again") from None
    except _DAMAGE as error:
        raise ArchiveError(f"{archive}: is damaged ({error}); delete it and run again") from None


def read_member(archive: Path, member: str, *, limit: int) -> bytes:
    """The whole content of one member; as `open_member`."""
    with open_member(archive, member, limit=limit) as stream:
        return stream.read()


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than a number of bytes."""

    def __init__(self, source: IO[bytes], limit: int) -> None:
        self._source, self._left, self._limit = source, limit, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        block = self._source.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise ArchiveError(f"holds more than the {self._limit:,} bytes expected")
        buffer[: len(block)] = block
        return len(block)


def _bounded(source: IO[bytes], limit: int) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Bounded(source, limit), 1 << 16))


@contextmanager
def _zip(archive: Path, member: str, limit: int) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            plain = kind in (_UNKNOWN_TYPE, stat.S_IFREG, stat.S_IFDIR)
            # orig_filename: zipfile has cut and turned the other one into something harmless.
            _refuse_unsafe(info.orig_filename, plain)
        found = [info for info in opened.infolist() if info.filename == member]
        _refuse_all_but_one(len(found), member)
        if found[0].flag_bits & _ENCRYPTED:
            raise ArchiveError(f"{member} is encrypted")
        if found[0].file_size > limit:
            raise ArchiveError(
                f"{member} says it holds {found[0].file_size:,} bytes, more than the {limit:,} "
                f"expected"
            )
        with opened.open(found[0]) as stream:
            yield _bounded(stream, limit)


@contextmanager
def _tar(archive: Path, member: str, limit: int) -> Iterator[BinaryIO]:
    with archive.open("rb") as file, _tar_stream(file, member, limit) as stream:
        yield stream


@contextmanager
def _tar_gzip(archive: Path, member: str, limit: int) -> Iterator[BinaryIO]:
    with gzip.open(archive) as file:
        plain = cast(IO[bytes], file)
        with _tar_stream(plain, member, limit) as stream:
            yield stream


@contextmanager
def _tar_stream(source: IO[bytes], member: str, limit: int) -> Iterator[BinaryIO]:
    """Read forward only, so that the bound holds for headers and skipped members too."""
    with tarfile.open(fileobj=_bounded(source, limit), mode="r|") as opened:
        for info in opened:
            _refuse_unsafe(info.name, info.isreg() or info.isdir())
            if info.name == member:
                stream = opened.extractfile(info)
                if stream is None:
                    raise ArchiveError(f"{member} is no file")
                yield cast(BinaryIO, stream)
                return
    _refuse_all_but_one(0, member)


@contextmanager
def _gzip(archive: Path, member: str, limit: int) -> Iterator[BinaryIO]:
    with gzip.open(archive) as file:
        yield _bounded(cast(IO[bytes], file), limit)


def _refuse_unsafe(name: str, plain: bool) -> None:
    parts = re.split(r"[/\\]", name)
    if ".." in parts or name[:1] in ("/", "\\") or ":" in parts[0] or "\0" in name:
        raise ArchiveError(f"holds the unsafe name {name!r}")
    if not plain:
        raise ArchiveError(f"holds {name!r}, a link or a device")


def _refuse_all_but_one(found: int, member: str) -> None:
    if found != 1:
        raise ArchiveError(f"holds {found or 'no'} members called {member}")
