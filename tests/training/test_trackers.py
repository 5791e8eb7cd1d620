"""A tracker that cannot be opened."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from training.trackers import TRACKERS, TrackedPhase


def test_a_run_that_wandb_does_not_open_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**settings: Any) -> None:
        raise LookupError("no server")

    package = ModuleType("wandb")
    package.Error, package.Settings, package.init = LookupError, dict, init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", package)
    with pytest.raises(ValueError, match=r"^run\.trackers: wandb: no server; with WANDB_MODE=off"):
        TRACKERS["wandb"](TrackedPhase(tmp_path, "x", "y", {}), 0)
