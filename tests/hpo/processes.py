"""Processes that the sweeps' tests start, and let go all at once."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def started(*arguments: object) -> "subprocess.Popen[str]":
    """Python with these arguments, as if called from the project's folder."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def let_go(processes: Sequence["subprocess.Popen[str]"], patience_s: float) -> list[str]:
    """Tell all of them to go on, and wait until they end well; what each has printed."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=patience_s) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return [out for out, _ in said]
