"""Going on while a storage is away: a database that restarts, a proxy that is gone."""

import time
from collections.abc import Callable
from typing import TypeVar

from nas.sweep.passing import is_passing

T = TypeVar("T")


def tried(action: Callable[[], object]) -> bool:
    """Do what can be left out this time; whether the storage was there.

    Raises:
        Exception: whatever the action raises that will not pass by itself.
    """
    try:
        action()
    except Exception as error:
        if not is_passing(error):
            raise
        return False
    return True


def until_there(action: Callable[[], T], *, limit_s: float, wait: Callable[[], None]) -> T:
    """Do what must be done, again and again while the storage is away.

    Args:
        action: what is done; a try that seemed to fail may have been done all the same.
        limit_s: after so many seconds the storage's own error is raised.
        wait: called between two tries.
    """
    began = time.monotonic()
    while True:
        try:
            return action()
        except Exception as error:
            if not is_passing(error) or time.monotonic() - began > limit_s:
                raise
        wait()
