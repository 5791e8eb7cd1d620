"""A sweep's journal: its lines are checked and a torn end is mended before Optuna reads it.

Optuna ignores a last line without a line end, and appends the next record to it. From then on the
file cannot be opened (optuna/optuna#5138).
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileSymlinkLock

from utils.files import named

# Optuna's records are a few hundred bytes; a line beyond this is not read into memory.
MAX_LINE_BYTES = 2**24
# How each record begins. It cannot stand inside a text of one, where quotes are escaped.
_BEGINNING = b'{"op_code":'
# How many beginnings of a torn line are tried, from its end.
_TRIED = 8
Say = Callable[[str], None]


class _Torn(ValueError):
    """The text is no whole JSON: a write that was not finished may have left it."""


def _check_record(line: bytes) -> None:
    """Refuse what is no record: no JSON (_Torn), or JSON of something else (ValueError).

    Only what every record of Optuna has is looked at. The fields of each operation are Optuna's
    own affair: where they do not fit, the replay fails, and `open_storage` names the line.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Torn(f"no JSON: {str(error) or type(error).__name__}") from None
    if not isinstance(record, dict):
        raise ValueError("no object")
    # Both are needed: an attribute's value may be an object with a key op_code, and be all that is
    # whole of a torn line. And true is no code, although it equals 1, which deletes the study.
    for name, kind in (("op_code", int), ("worker_id", str)):
        if name not in record:
            raise ValueError(f"{name} is missing")
        if type(record[name]) is not kind:
            raise ValueError(f"{name} is of type {type(record[name]).__name__}")


class Journal(BaseJournalBackend):
    """Optuna's file backend, whose appended records never join a torn line.

    `line` is the number of the line that was handed out last, from 1.
    """

    def __init__(self, path: Path, say: Say) -> None:
        """Open a journal that is there and was checked; `say` is given a line about each repair."""
        assert path.is_absolute()
        self.line = 0
        self._path = path
        self._say = say
        self._file = JournalFileBackend(str(path))

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """The whole records after the first `log_number_from`."""
        records = self._file.read_logs(log_number_from)
        for self.line, record in enumerate(records, start=log_number_from + 1):
            yield record

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add records; what a full disk leaves of them is mended before the next one is added.

        Raises:
            OSError: the disk is full, or the file cannot be written.
        """
        text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in logs)
        with named(self._path), locked(self._path):
            if not _ends_whole(self._path):
                _mend_end(self._path, self._say)
            with self._path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())


def check(path: Path, say: Say) -> None:
    """Check every line of a journal, and mend its end where a write was not finished.

    Raises:
        ValueError: a line in the middle is damaged, with its number; nothing was changed.
        OSError: the file cannot be read, or not be mended.
    """
    with named(path):
        if _check_lines(path):
            return
        # What looks torn may be another process's write; under the lock it is not.
        with locked(path):
            _mend_end(path, say)
        _check_lines(path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that Optuna's own processes take for a journal; works on NFS.

    It records no owner: one that a killed process left is released by Optuna after 30 seconds.
    """
    # A relative path would dangle, and Optuna waits for ever for a dangling lock.
    assert path.is_absolute()
    lock = JournalFileSymlinkLock(str(path))
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_lines(path: Path) -> bool:
    """Whether the last line is whole; refuses a damaged one before it."""
    with path.open("rb") as file:
        # What others append from now on is theirs to check.
        left = os.fstat(file.fileno()).st_size
        number, whole = 0, True
        while line := file.readline(min(left, MAX_LINE_BYTES)):
            number, left = number + 1, left - len(line)
            if left and not line.endswith(b"\n"):
                raise _damaged(path, number, f"longer than {MAX_LINE_BYTES} bytes")
            try:
                _check_record(line)
                whole = line.endswith(b"\n")
            except _Torn as error:
                if left:
                    raise _damaged(path, number, str(error)) from None
                whole = False
            except ValueError as error:
                raise _damaged(path, number, str(error)) from None
    return whole


def _damaged(path: Path, number: int, why: str) -> ValueError:
    before = f"lines 1 to {number - 1}" if number > 1 else "none of its lines"
    return ValueError(
        f"{path}:{number}: damaged ({why}); nothing was changed. Put back a copy of the file, "
        f"or keep {before}, which loses all that was recorded later"
    )


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _mend_end(path: Path, say: Say) -> None:
    """Keep the whole records of the last line, and put the rest into a file beside the journal."""
    with path.open("r+b") as file:
        start, line = _last_line(file)
        whole, torn = _sort(line)
        mended = b"".join(record.removesuffix(b"\n") + b"\n" for record in whole)
        if mended == line:
            return
        if torn:
            name = _keep(path, torn)
            say(f"{path}: the last line was torn; {len(torn)} bytes of it are now in {name}")
        else:
            say(f"{path}: the last record lacked its line end, which was added")
        # A kill between the two leaves a torn last line again, and never takes a whole record.
        file.seek(start)
        file.write(mended)
        file.flush()
        file.truncate()
        os.fsync(file.fileno())


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    size = file.seek(0, os.SEEK_END)
    begin = file.seek(max(0, size - MAX_LINE_BYTES))
    tail = file.read(size - begin)
    after = tail.rfind(b"\n", 0, -1) + 1
    assert after or not begin, "lines are checked before the end is mended"
    return begin + after, tail[after:]


def _sort(line: bytes) -> tuple[list[bytes], bytes]:
    """The whole records of a line and what is torn: a record may follow on half of another one."""
    if _is_record(line):
        return [line], b""
    # From the right: the last one was written after the torn one. Its object may hold others.
    places = [place.start() for place in re.finditer(re.escape(_BEGINNING), line)]
    for place in places[: -_TRIED - 1 : -1]:
        before, last = line[:place], line[place:]
        if _is_record(last):
            return ([before, last], b"") if _is_record(before) else ([last], before)
    return [], line


def _is_record(line: bytes) -> bool:
    try:
        _check_record(line)
    except ValueError:
        return False
    return True


def _keep(path: Path, torn: bytes) -> str:
    """Write the torn bytes into a new file beside the journal; its name."""
    number = 1
    while True:
        beside = path.with_name(f"{path.name}.torn-{number}")
        try:
            with named(beside), beside.open("xb") as file:
                file.write(torn)
                file.flush()
                os.fsync(file.fileno())
            return beside.name
        except FileExistsError:
            number += 1
