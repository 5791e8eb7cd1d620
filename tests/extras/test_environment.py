"""The environment of the extras holds what pyproject.toml says."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
EXTRAS = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_every_extra_is_installed_in_its_range(extra: str) -> None:
    for entry in EXTRAS[extra]:
        requirement = Requirement(entry)
        name = re.sub(r"[-_.]+", "-", requirement.name)
        assert version(name) in requirement.specifier, entry
