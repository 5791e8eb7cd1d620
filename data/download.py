"""Published files: downloaded whole and checked, and read from their zip files.

What has arrived lies in NAME.part beside the file and is resumed, by this address or the next one;
the rename to NAME comes after the checksum. A process that downloads holds a lock on the part.
Where no address gives the file, one message says what to put where. Nothing of an archive is ever
unpacked to a path, and one with a name that could leave a folder, a link or a device in it is
refused whole: no honest one among our corpora has any.
"""

import fcntl
import hashlib
import http.client
import io
import os
import re
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from utils.archives import DAMAGE, ArchiveError, check_members, member_of
from utils.files import named

# Longest silence of a server.
TIMEOUT_S = 30.0
_BLOCK = 1 << 16
_LINES = 10
_AGENT = "parnas (https://arxiv.org/abs/2009.04534)"
_NETWORK = (OSError, http.client.HTTPException, ValueError)


@dataclass(frozen=True)
class Remote:
    """A file that others publish: the addresses in the order to try, the hash of its content.

    No more bytes than `limit` are ever taken; `size` is exact, where it is published.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str
    limit: int
    size: int | None = None


class _Refused(Exception):
    """Why one address did not give the file."""


def fetch(
    remote: Remote,
    folder: Path,
    *,
    addresses: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> Path:
    """The checked file, which is downloaded unless it is there; one put there by hand is used.

    ValueError where a file of another content lies there, or no address gave the file.
    """
    final = folder / remote.name
    if final.exists():
        return _checked(final, remote)
    folder.mkdir(parents=True, exist_ok=True)
    tried = tuple(addresses or remote.addresses)
    failures: list[str] = []
    with _locked_part(final, progress) as part:
        if final.exists():
            return _checked(final, remote)
        for address in tried:
            try:
                with named(Path(part.name)):
                    _Download(remote, address, part, progress).complete()
            except _Refused as refusal:
                failures.append(f"{urlsplit(address).netloc}: {refusal}")
                progress(f"{remote.name}: {failures[-1]}")
                continue
            os.fsync(part.fileno())
            os.replace(part.name, final)
            return final
    lines = [
        f"{remote.name} is not here and could not be downloaded:",
        *(f"  {failure}" for failure in failures),
        "By hand, on a machine with a network: get it from",
        *(f"  {address}" for address in tried),
        f"and put it at\n  {final}",
        f"(SHA-256 {remote.sha256}), then run the same command again.",
    ]
    raise ValueError("\n".join(lines))


def _checked(final: Path, remote: Remote) -> Path:
    """A file that was there before: never removed, since somebody may have put it there."""
    if not final.is_file():
        raise ValueError(f"{final}: is not a file; move it away and run again")
    with final.open("rb") as file:
        problem = _difference(file, remote)
    if problem:
        raise ValueError(
            f"{final}: {problem}; delete it and run again, or put the right file there"
        )
    return final


def _difference(file: io.BufferedReader | io.BufferedRandom, remote: Remote) -> str | None:
    size = file.seek(0, os.SEEK_END)
    if remote.size is not None and size != remote.size:
        return f"has {size:,} bytes instead of {remote.size:,}"
    file.seek(0)
    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != remote.sha256:
        return f"has SHA-256 {sha256[:12]}... instead of {remote.sha256[:12]}..."
    return None


@contextmanager
def _locked_part(final: Path, progress: Callable[[str], None]) -> Iterator[io.BufferedRandom]:
    """The part, open and locked; an empty one does not stay."""
    path = final.with_name(final.name + ".part")
    while True:
        with path.open("a+b") as part:
            with named(path):
                _lock(part, f"{final.name}: another process is downloading it; waiting", progress)
            # Whoever held the lock may have renamed or removed what was opened here.
            if not _is_at(path, part):
                continue
            try:
                yield part
            finally:
                with suppress(FileNotFoundError):
                    if path.stat().st_size == 0:
                        path.unlink()
            return


def _is_at(path: Path, file: io.BufferedRandom) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: io.BufferedRandom, waiting: str, progress: Callable[[str], None]) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress(waiting)
        fcntl.flock(file, fcntl.LOCK_EX)


@dataclass(frozen=True)
class _Download:
    """One file from one address into its part."""

    remote: Remote
    address: str
    part: io.BufferedRandom
    progress: Callable[[str], None]

    def complete(self) -> None:
        """Complete the part, or begin at zero where its old start turns out wrong."""
        resumed = self._get()
        problem = _difference(self.part, self.remote)
        if problem and resumed:
            self.part.truncate(0)
            self._get()
            problem = _difference(self.part, self.remote)
        if problem:
            self.part.truncate(0)
            raise _Refused(f"what it gave {problem}")

    def _get(self) -> bool:
        """Add to the part what it lacks; False where the server sent all of it again."""
        if urlsplit(self.address).scheme not in ("http", "https"):
            raise _Refused("is no http or https address")
        self.part.flush()
        have = self.part.seek(0, os.SEEK_END)
        headers = {"User-Agent": _AGENT, "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        request = urllib.request.Request(self.address, headers=headers)
        try:
            body = _opener().open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and have:
                return True
            raise _Refused(f"HTTP {error.code} {error.reason}") from None
        except _NETWORK as error:
            raise _Refused(_reason(error)) from None
        with body:
            start, end = _range(body, have)
            if end is not None and self.remote.size not in (None, end):
                raise _Refused(f"offers {end:,} bytes instead of {self.remote.size:,}")
            if end is not None and end > self.remote.limit:
                raise _Refused(f"offers {end:,} bytes instead of at most {self.remote.limit:,}")
            self._receive(body, start, end)
        return start > 0

    def _receive(self, body: http.client.HTTPResponse, done: int, end: int | None) -> None:
        """Write a body to the part. What a broken connection leaves there can be resumed."""
        self.part.truncate(done)
        name, size = self.remote.name, self.remote.size if end is None else end
        limit = self.remote.limit if size is None else size
        reported = done
        self.progress(f"{name}: from {urlsplit(self.address).netloc}, {_megabytes(done, size)}")
        while block := _read(body, done):
            done += len(block)
            if done > limit:
                self.part.truncate(0)
                raise _Refused(f"sent more than {limit:,} bytes")
            self.part.write(block)
            if done - reported >= max(limit // _LINES, _BLOCK):
                self.progress(f"{name}: {_megabytes(done, size)}")
                reported = done
        self.part.flush()
        if end is not None and done < end:
            raise _Refused(f"stopped after {done:,} of {end:,} bytes")


def _opener() -> urllib.request.OpenerDirector:
    """Urllib's own, less file:, data: and ftp:, where a redirect must not lead."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _range(body: http.client.HTTPResponse, have: int) -> tuple[int, int | None]:
    """Where an answer starts in the file, and the size of the whole file if it says so."""
    length = body.headers.get("Content-Length", "")
    if body.status == http.client.OK:
        return 0, int(length) if length.isdecimal() else None
    content_range = body.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", content_range.strip())
    if body.status != http.client.PARTIAL_CONTENT or not match or int(match[1]) != have:
        raise _Refused(
            f"HTTP {body.status} with Content-Range {content_range!r} to a request from {have:,}"
        )
    return have, int(match[3])


def _read(body: http.client.HTTPResponse, done: int) -> bytes:
    try:
        return body.read1(_BLOCK)
    except _NETWORK as error:
        raise _Refused(f"broke off after {done:,} bytes: {_reason(error)}") from None


def _megabytes(done: int, end: int | None) -> str:
    return f"{done / 1e6:,.1f} of {end / 1e6:,.1f} MB" if end else f"{done / 1e6:,.1f} MB"


def _reason(error: BaseException) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else None
    if isinstance(reason, BaseException):
        return _reason(reason)
    if reason:
        return str(reason)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(message.split()) or type(error).__name__


@contextmanager
def open_member(archive: Path, member: str, *, limit: int) -> Iterator[BinaryIO]:
    """Read one member of a zip file, by its exact name; at most `limit` bytes may come out.

    ArchiveError comes on entry or while reading.
    """
    try:
        # What comes out is never more than the size in the directory, whatever is in there.
        with (
            zipfile.ZipFile(archive) as opened,
            opened.open(_checked_member(opened, member, limit)) as stream,
        ):
            yield cast(BinaryIO, stream)
    except ArchiveError as error:
        raise ArchiveError(f"{archive}: {error}; delete it and run again") from None
    except DAMAGE as error:
        raise ArchiveError(f"{archive}: is damaged ({error}); delete it and run again") from None


def _checked_member(opened: zipfile.ZipFile, member: str, limit: int) -> zipfile.ZipInfo:
    check_members(opened)
    return member_of(opened, member, limit)
