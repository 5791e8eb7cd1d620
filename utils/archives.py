"""Zip archives of others: no name may leave a folder, no member is a link, sizes are bounded."""

import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# All that a damaged archive can end in.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
# What a zip made elsewhere than on Unix says about a member's type: nothing.
_UNKNOWN_TYPE = 0
_ENCRYPTED = 1


class ArchiveError(ValueError):
    """An archive that is damaged, hostile, or without the member."""


@contextmanager
def opened_archive(path: Path, most_bytes: int) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive to read from, after a look at the names, types and sizes of its members.

    ArchiveError, which names the archive, comes on entry or from what is read inside.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, most_bytes)
            yield archive
    except DAMAGE as error:
        raise ArchiveError(f"{path}: damaged ({error}); get it again") from None


def _check_members(archive: zipfile.ZipFile, most_bytes: int) -> None:
    path, total = archive.filename, 0
    for info in archive.infolist():
        # zipfile has cut and turned `filename` into something harmless.
        name = info.orig_filename
        if is_unsafe(name):
            raise ArchiveError(f"{path}: holds the unsafe name {name!r:.200}")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (_UNKNOWN_TYPE, stat.S_IFREG, stat.S_IFDIR):
            raise ArchiveError(f"{path}: holds {name!r:.200}, a link or a device")
        if info.flag_bits & _ENCRYPTED:
            raise ArchiveError(f"{path}: {name!r:.200} is encrypted")
        total += info.file_size
    if total > most_bytes:
        raise ArchiveError(f"{path}: unpacks to {total:,} bytes, more than {most_bytes:,}")


def is_unsafe(name: str) -> bool:
    """True for a name that could lead out of the folder that it is put into."""
    parts = re.split(r"[/\\]", name)
    return ".." in parts or name[:1] in ("/", "\\") or ":" in parts[0] or "\0" in name
