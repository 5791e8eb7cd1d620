"""Lines on the screen."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from utils.screen import announce


def test_a_line_is_one_write_so_that_no_other_thread_s_comes_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writes: list[str] = []

    class Screen:
        def write(self, text: str) -> None:
            if text:
                writes.append(text)

        def flush(self) -> None:
            writes.append("flush")

    monkeypatch.setattr("sys.stdout", Screen())
    announce("trial 3: stopped")
    assert writes == ["trial 3: stopped\n", "flush"]


def test_a_full_disk_behind_standard_output_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is left in its buffer cannot be written when it is closed either.
    with suppress(OSError), Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(OSError, match="standard output") as caught:
            announce("trial 3: stopped")
    assert caught.value.errno == errno.ENOSPC
