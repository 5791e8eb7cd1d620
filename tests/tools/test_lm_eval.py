"""The command that needs lm_eval, where that is not installed (tests/extras has the rest)."""

import sys

import pytest

from tests.refusal import refused
from tools import lm_eval as command


def test_a_missing_package_is_named_with_what_brings_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    said = refused(command.main, capsys, "absent", "--tasks", "mine")
    assert said == (
        "tools.lm_eval: the package lm_eval is missing; pip install 'lm_eval>=0.4.9', or with the "
        "versions of our tests all extras: pip install -r requirements-extras.lock\n"
    )
