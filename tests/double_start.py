"""Two processes that open a phase's folder at the same moment, forked from this one."""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from training.run_dir import locked
from training.trainer import Trainer

_FORK = multiprocessing.get_context("fork")
_WAIT_S = 300


@dataclass(frozen=True)
class Ending:
    """Whether one of them got the folder, its exit code, and what it said on stderr."""

    opened: bool
    code: int | None
    lines: tuple[str, ...]


def double_start(starts: Sequence[Callable[[], object]]) -> list[Ending]:
    """Let each start in a process of its own; all meet right before `Trainer.open`.

    Who has the folder keeps it until every other one has had its answer. What a start returns, or
    exits with, is its exit code.
    """
    ready, answered = (_FORK.Barrier(len(starts), timeout=_WAIT_S) for _ in range(2))
    opened = [_FORK.Value("b", 0) for _ in starts]
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(number) for number in range(len(starts))]
        children = [
            _FORK.Process(target=_start, args=(start, ready, answered, flag, log))
            for start, flag, log in zip(starts, opened, logs, strict=True)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        return [
            Ending(bool(flag.value), child.exitcode, tuple(log.read_text().splitlines()))
            for flag, child, log in zip(opened, children, logs, strict=True)
        ]


def _start(start: Callable[[], object], ready: Any, answered: Any, opened: Any, log: Path) -> None:
    os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    open_trainer = Trainer.open

    def at_once(self: Trainer) -> None:
        ready.wait()
        try:
            open_trainer(self)
            opened.value = 1
        finally:
            answered.wait()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Trainer, "open", at_once)
        code: Any = start()
    sys.exit(int(code or 0))


def others_may_have(folder: Path) -> bool:
    """Whether another process gets the lock of a folder."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with locked(folder):
                code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
