"""Optional packages: what pyproject.toml calls extras, asked for where they are needed only."""

import tomllib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def check_installed(what: str, extra: str, packages: Sequence[str]) -> None:
    """Raise ValueError with the command that brings a package that is missing.

    `what` is what the user asked for; `packages` are the names by which the extra is imported.
    """
    if missing := [package for package in packages if find_spec(package) is None]:
        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
        needed = " ".join(map(repr, project["optional-dependencies"][extra]))
        raise ValueError(f"{what}: the package {missing[0]} is missing; pip install {needed}")
