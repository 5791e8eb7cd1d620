"""The fixture of plans, for the laboratory."""

from pathlib import Path

import pytest

from tests.pipeline.conftest import PlanWith, plan_of


@pytest.fixture
def plan_with(experiment_file: Path, tmp_path: Path) -> PlanWith:
    """What makes the plan of the tiny experiment with settings."""
    return lambda *settings: plan_of(experiment_file, tmp_path / "run", *settings)
