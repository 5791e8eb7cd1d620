"""Two processes that open a phase's folder at the same moment, forked from this one."""

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from training.trainer import Phase


@dataclass(frozen=True)
class Ending:
    """How one of them ended.

    Attributes:
        opened: whether it got the folder.
        code: its exit code.
        lines: what it said on stderr.
    """

    opened: bool
    code: int
    lines: tuple[str, ...]


def double_start(starts: Sequence[Callable[[], object]]) -> list[Ending]:
    """Let each start in a process of its own; all meet right before `Phase.open`.

    Who has the folder keeps it until every other one has had its answer.

    Args:
        starts: each opens one phase; what it returns, or exits with, is its exit code.
    """
    gates = [os.pipe() for _ in range(2)]
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        children = [
            _fork(start, gates, Path(folder) / str(number)) for number, start in enumerate(starts)
        ]
        for gate, phase in zip(gates, ("ready", "answered"), strict=True):
            for child in children:
                assert os.read(child.says, 1) == phase[:1].encode(), child.log.read_text()
            os.close(gate[0])
            os.close(gate[1])  # an end of file wakes all that read
        return [child.ending() for child in children]


@dataclass(frozen=True)
class _Child:
    number: int
    says: int
    log: Path

    def ending(self) -> Ending:
        _, status = os.waitpid(self.number, 0)
        os.close(self.says)
        content = json.loads(self.log.with_suffix(".json").read_text())
        lines = self.log.read_text().splitlines()
        return Ending(content["opened"], os.waitstatus_to_exitcode(status), tuple(lines))


def _fork(start: Callable[[], object], gates: list[tuple[int, int]], log: Path) -> _Child:
    says, said = os.pipe()
    number = os.fork()
    if number:
        os.close(said)
        return _Child(number, says, log)
    code = 99
    try:
        for _, end in gates:
            os.close(end)
        os.dup2(os.open(log, os.O_CREAT | os.O_WRONLY), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        code = _run(start, [gate for gate, _ in gates], said, log)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(start: Callable[[], object], gates: list[int], said: int, log: Path) -> int:
    open_phase, opened = Phase.open, []

    def at_once(self: Phase) -> None:
        os.write(said, b"r")
        os.read(gates[0], 1)
        try:
            open_phase(self)
            opened.append(True)
        finally:
            log.with_suffix(".json").write_text(json.dumps({"opened": bool(opened)}))
            os.write(said, b"a")
            os.read(gates[1], 1)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Phase, "open", at_once)
        try:
            code: Any = start()
        except SystemExit as stop:
            code = stop.code
    return int(code or 0)
