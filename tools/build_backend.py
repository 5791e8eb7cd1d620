"""What pip asks to build Parnas: it may be installed in place (-e) alone.

Its packages have names such as data, model and report, too common to be put into an environment. A
wheel without them would say that Parnas is installed, and hold no code.
"""

from typing import Any, NoReturn

from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
]


def _refuse(*arguments: Any, **settings: Any) -> NoReturn:
    """Exit with what to do instead."""
    raise SystemExit(
        "Parnas runs in its own folder and cannot be installed: clone the repository, run "
        "`make setup` there, and start `.venv/bin/python search.py configs/quickstart.yaml`. "
        "`pip install -e .` in the clone installs what it needs into your own environment."
    )


# The first question of each; pip would else fetch torch before it builds.
get_requires_for_build_wheel = build_wheel = _refuse
get_requires_for_build_sdist = build_sdist = _refuse
