"""Zip archives: those of others, of which nothing is believed, and our own, which are sealed.

A sealed archive ends with the SHA-256 of all before it, in the zip's comment: a byte that changed
anywhere is seen before anything is read. The same members give the same bytes (of one zlib): sorted
names, one time, no owner.
"""

import hashlib
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from utils.files import check_is_file, make_durable, named

DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
# What a zip made elsewhere than on Unix says about a member's type: nothing.
_UNKNOWN_TYPE = 0
_ENCRYPTED = 1
_UNIX = 3
# The first time that a zip can hold.
_TIME = (1980, 1, 1, 0, 0, 0)
_SEAL = hashlib.sha256().digest_size * 2
_MOST_MEMBERS = 100_000


class ArchiveError(ValueError):
    """An archive that is damaged, hostile, or without the member."""


def is_unsafe(name: str) -> bool:
    """Whether a name could lead out of the folder that it is put into."""
    parts = re.split(r"[/\\]", name)
    return ".." in parts or name[:1] in ("/", "\\") or ":" in parts[0] or "\0" in name


def check_members(opened: zipfile.ZipFile) -> None:
    """Raise ArchiveError for a name that could leave a folder, a link or a device."""
    for info in opened.infolist():
        # zipfile has cut and turned `filename` into something harmless.
        name = info.orig_filename
        if is_unsafe(name):
            raise ArchiveError(f"holds the unsafe name {name!r:.200}")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (_UNKNOWN_TYPE, stat.S_IFREG, stat.S_IFDIR):
            raise ArchiveError(f"holds {name!r:.200}, a link or a device")


def member_of(opened: zipfile.ZipFile, name: str, limit: int) -> zipfile.ZipInfo:
    """The one member of exactly this name; ArchiveError where there is none, or a larger one."""
    members = [info for info in opened.infolist() if info.filename == name]
    if len(members) != 1:
        raise ArchiveError(f"holds {len(members) or 'no'} members called {name}")
    if members[0].flag_bits & _ENCRYPTED:
        raise ArchiveError(f"{name} is encrypted")
    if members[0].file_size > limit:
        raise ArchiveError(
            f"{name} says it holds {members[0].file_size:,} bytes, more than the {limit:,} expected"
        )
    return members[0]


def write_sealed(path: Path, members: Mapping[str, bytes | Path]) -> None:
    """Write a sealed archive whole, of contents and of files that are copied into it.

    Raises:
        OSError: it cannot be written, or a file cannot be read; an older archive stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with named(path, keep_names=True):
        try:
            with zipfile.ZipFile(temporary, "w") as archive:
                for name in sorted(members):
                    _add(archive, name, members[name])
                archive.comment = b"0" * _SEAL
            with temporary.open("r+b") as file:
                file.seek(-_SEAL, os.SEEK_END)
                file.write(_seal_of(temporary))
            make_durable(temporary)
            os.replace(temporary, path)
            make_durable(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _add(archive: zipfile.ZipFile, name: str, content: bytes | Path) -> None:
    info = zipfile.ZipInfo(name, _TIME)
    info.create_system, info.external_attr = _UNIX, (stat.S_IFREG | 0o644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    if isinstance(content, bytes):
        archive.writestr(info, content)
        return
    with content.open("rb") as source:
        # So that the header has room for it: the size is not known to zipfile before.
        info.file_size = os.fstat(source.fileno()).st_size
        with archive.open(info, "w") as target:
            shutil.copyfileobj(source, target)


def _seal_of(path: Path) -> bytes:
    """The hash of all but the last bytes, as text."""
    digest, left = hashlib.sha256(), path.stat().st_size - _SEAL
    with path.open("rb") as file:
        while block := file.read(min(1 << 20, left)):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest().encode()


def seal(path: Path) -> str:
    """The seal of an archive; ArchiveError where it has none, or a byte has changed."""
    check_is_file(path)
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _SEAL))
        found = file.read()
    if len(found) < _SEAL or not re.fullmatch(rb"[0-9a-f]+", found):
        raise ArchiveError(f"{path}: no archive of tools.pack, or cut off")
    if _seal_of(path) != found:
        raise ArchiveError(f"{path}: damaged (its SHA-256 is another); copy it again")
    return found.decode()


@contextmanager
def opened_sealed(path: Path) -> Iterator[zipfile.ZipFile]:
    """A sealed archive to read from; its names and types have been looked at.

    ArchiveError, which names the archive, comes on entry or from what is read inside.
    """
    seal(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > _MOST_MEMBERS:
                raise ArchiveError(f"holds more than {_MOST_MEMBERS:,} members")
            check_members(archive)
            for name, count in Counter(archive.namelist()).most_common(1):
                if count > 1:
                    raise ArchiveError(f"holds {count} members called {name:.200}")
            yield archive
    except ArchiveError as error:
        raise ArchiveError(f"{path}: {error}") from None
    except DAMAGE as error:
        raise ArchiveError(f"{path}: damaged ({error})") from None


def read_member(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    """The content of a member; never more bytes than the directory says, which are checked."""
    return archive.read(member_of(archive, name, limit))


def check_total(archive: zipfile.ZipFile, names: Sequence[str], limit: int) -> None:
    """Raise ArchiveError where members say that they unpack to more bytes together."""
    total = sum(archive.getinfo(name).file_size for name in names)
    if total > limit:
        raise ArchiveError(f"unpacks to {total:,} bytes, more than {limit:,}")
