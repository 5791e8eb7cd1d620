"""Command lines that are refused."""

from typing import Any

import pytest

from tests.runs import code_of


def refused(main: Any, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What is said on stderr where a command line ends with exit code 2; no traceback."""
    assert code_of(main, *arguments) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said
