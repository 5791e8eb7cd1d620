"""One member of a zip file as a bounded stream. Nothing is ever unpacked to a path.

An archive with a name that could leave a folder, a link or a device in it is refused whole: no
honest one among our corpora has any.
"""

import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
# What a zip made elsewhere than on Unix says about a member's type: nothing.
_UNKNOWN_TYPE = 0
_ENCRYPTED = 1


class ArchiveError(ValueError):
    """An archive that is damaged, hostile, or without the member."""


@contextmanager
def open_member(archive: Path, member: str, *, limit: int) -> Iterator[BinaryIO]:
    """Read one member of a zip file, by its exact name; at most `limit` bytes may come out.

    Raises:
        ArchiveError: on entry or while reading: see the class.
        OSError: the file cannot be read.
    """
    try:
        # What comes out is never more than the size that was found, whatever is in there.
        with (
            zipfile.ZipFile(archive) as opened,
            opened.open(_find(opened, member, limit)) as stream,
        ):
            yield cast(BinaryIO, stream)
    except ArchiveError as error:
        raise ArchiveError(f"{archive}: {error}; delete it and run again") from None
    except _DAMAGE as error:
        raise ArchiveError(f"{archive}: is damaged ({error}); delete it and run again") from None


def _find(opened: zipfile.ZipFile, member: str, limit: int) -> zipfile.ZipInfo:
    for info in opened.infolist():
        # zipfile has cut and turned `filename` into something harmless.
        name = info.orig_filename
        parts = re.split(r"[/\\]", name)
        if ".." in parts or name[:1] in ("/", "\\") or ":" in parts[0] or "\0" in name:
            raise ArchiveError(f"holds the unsafe name {name!r}")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (_UNKNOWN_TYPE, stat.S_IFREG, stat.S_IFDIR):
            raise ArchiveError(f"holds {name!r}, a link or a device")
    members = [info for info in opened.infolist() if info.filename == member]
    if len(members) != 1:
        raise ArchiveError(f"holds {len(members) or 'no'} members called {member}")
    if members[0].flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{member} is encrypted")
    if members[0].file_size > limit:
        raise ArchiveError(
            f"{member} says it holds {members[0].file_size:,} bytes, more than the {limit:,} "
            f"expected"
        )
    return members[0]
