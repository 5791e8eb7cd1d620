"""Published files: downloaded to a temporary name, checked by their hash, and then renamed.

Where no address gives the file, one message says what to put where. Nothing of an archive is
unpacked to a path: a member is read as a stream.
"""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from utils.archives import ArchiveError, opened_archive
from utils.files import make_durable, named

# Longest silence of a server.
TIMEOUT_S = 30.0
_BLOCK = 1 << 16
_LINES = 10
_AGENT = "parnas (https://arxiv.org/abs/2009.04534)"
_NETWORK = (OSError, http.client.HTTPException, ValueError)
_LARGEST_ARCHIVE = 2**32


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
    """An address that did not give the file, and why."""


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
        # Never removed, since somebody may have put it there.
        if problem := _difference(final, remote):
            raise ValueError(
                f"{final}: {problem}; delete it and run again, or put the right file there"
            )
        return final
    folder.mkdir(parents=True, exist_ok=True)
    tried = tuple(addresses or remote.addresses)
    failures: list[str] = []
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    for address in tried:
        try:
            with named(temporary, keep_names=True):
                _download(remote, address, temporary, progress)
                make_durable(temporary)
            os.replace(temporary, final)
            return final
        except _Refused as refusal:
            failures.append(f"{urlsplit(address).netloc}: {refusal}")
            progress(f"{remote.name}: {failures[-1]}")
        finally:
            temporary.unlink(missing_ok=True)
    lines = [
        f"{remote.name} is not here and could not be downloaded:",
        *(f"  {failure}" for failure in failures),
        "By hand, on a machine with a network: get it from",
        *(f"  {address}" for address in tried),
        f"and put it at\n  {final}",
        f"(SHA-256 {remote.sha256}), then run the same command again.",
    ]
    raise ValueError("\n".join(lines))


def _difference(path: Path, remote: Remote) -> str | None:
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        return f"has {size:,} bytes instead of {remote.size:,}"
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != remote.sha256:
        return f"has SHA-256 {sha256[:12]}... instead of {remote.sha256[:12]}..."
    return None


def _download(
    remote: Remote, address: str, temporary: Path, progress: Callable[[str], None]
) -> None:
    """Write what an address gives to a temporary name; _Refused where it is not the file.

    Addresses of an experiment begin with http:// or https:// (data/config.py).
    """
    request = urllib.request.Request(address, headers={"User-Agent": _AGENT})
    try:
        body = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except _NETWORK as error:
        raise _Refused(_reason(error)) from None
    name, expected = remote.name, remote.size or remote.limit
    progress(f"{name}: from {urlsplit(address).netloc}, at most {expected / 1e6:,.1f} MB")
    done = reported = 0
    with body, temporary.open("wb") as file:
        while block := _read(body, done):
            file.write(block)
            done += len(block)
            if done > remote.limit:
                raise _Refused(f"sent more than {remote.limit:,} bytes")
            if done - reported >= max(expected // _LINES, _BLOCK):
                progress(f"{name}: {done / 1e6:,.1f} of {expected / 1e6:,.1f} MB")
                reported = done
    if problem := _difference(temporary, remote):
        raise _Refused(f"what it gave {problem}")


def _read(body: http.client.HTTPResponse, done: int) -> bytes:
    try:
        return body.read1(_BLOCK)
    except _NETWORK as error:
        raise _Refused(f"broke off after {done:,} bytes: {_reason(error)}") from None


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return " ".join(str(reason).split()) or type(reason).__name__


@contextmanager
def open_member(archive: Path, member: str) -> Iterator[BinaryIO]:
    """Read one member of a zip file, by its exact name; ArchiveError where there is none."""
    with opened_archive(archive, _LARGEST_ARCHIVE) as opened:
        if member not in opened.namelist():
            raise ArchiveError(f"{archive}: holds no member called {member}")
        with opened.open(member) as stream:
            yield cast(BinaryIO, stream)
