"""Trying again while a storage is away: a database that restarts, a proxy that is gone."""

import errno
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

# PostgreSQL's states: connection lost (08), shutting down or starting up (57P), too many
# connections (53300), and a transaction that was rolled back because of another one (40).
_POSTGRESQL = ("08", "57P", "53300", "40")
_FILES = {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN}
# What Optuna's proxy says of its own database; gRPC hands on nothing but the text.
_BEHIND_PROXY = "An exception is raised during the commit"
_PATIENCE_S = 600.0
T = TypeVar("T")


class StorageAway(Exception):
    """A storage did not answer for as long as anyone waits; its own error is the cause."""


def is_transient(error: BaseException) -> bool:
    """Whether a storage is out of reach just now, so that the same call may work later.

    The call that failed may have been done all the same: its answer is what got lost. So whoever
    tries again must bear UpdateFinishedTrialError from a tell.
    """
    return any(
        _of_database(each) or _of_proxy(each) or _of_files(each) for each in _with_causes(error)
    )


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from; Optuna wraps those of a database."""
    now: BaseException | None = error
    while now is not None:
        yield now
        now = now.__cause__


def _of_database(error: BaseException) -> bool:
    exceptions = sys.modules.get("sqlalchemy.exc")
    if exceptions is None or not isinstance(error, exceptions.DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if not isinstance(error, exceptions.OperationalError):
        return False
    state = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    # A connection that could not be made has no state.
    return state is None or state.startswith(_POSTGRESQL)


def _of_proxy(error: BaseException) -> bool:
    grpc = sys.modules.get("grpc")
    if grpc is None or not isinstance(error, grpc.RpcError) or not isinstance(error, grpc.Call):
        return False
    code = error.code()
    if code is grpc.StatusCode.UNKNOWN:
        return _BEHIND_PROXY in (error.details() or "")
    return code in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def _of_files(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _FILES


def try_once(action: Callable[[], object]) -> bool:
    """Do what can be left out this time; whether the storage was there.

    Raises:
        Exception: whatever the action raises that will not pass by itself.
    """
    try:
        action()
    except Exception as error:
        if not is_transient(error):
            raise
        return False
    return True


def retry_transient(action: Callable[[], T], wait: Callable[[], None]) -> T:
    """Do what must be done, again and again while the storage is away, for ten minutes at most.

    Args:
        action: what is done; a try that seemed to fail may have been done all the same.
        wait: called between two tries; it sleeps, and raises where nobody waits any longer.

    Raises:
        StorageAway: it is still away after that time.
        Exception: one that will not pass by itself.
    """
    began = time.monotonic()
    while True:
        try:
            return action()
        except Exception as error:
            if not is_transient(error):
                raise
            if time.monotonic() - began > _PATIENCE_S:
                raise StorageAway(str(error)) from error
        wait()
