"""Command lines that are refused."""

from collections.abc import Callable, Sequence

import pytest


def refused(
    main: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str], *arguments: object
) -> str:
    """What is said on stderr where a command line ends with exit code 2; no traceback."""
    code: object
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said
