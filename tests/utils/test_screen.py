"""Text for people."""

import pytest

from utils.text import print_line


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
    print_line("trial 3: stopped")
    assert writes == ["trial 3: stopped\n", "flush"]
