"""Which folders a command has written its run into, and names of files in them."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from pipeline.cli import SAVED

MOST_NAME = 60
# Each command writes one of these before anything else that could be taken for text; where a line
# has several, all must be there.
_MARKS = (
    *((saved,) for saved in SAVED),
    ("sweep/study.journal",),
    ("layouts/*/seed-*/experiment.yaml",),  # tools.layoutbench make, tools.rank --out
    ("regret.json", "seed-*/experiment.yaml"),  # tools.layoutbench search
    ("confirm.json", "*/seed-*/experiment.yaml"),  # tools.confirm
)


def short_text(text: str) -> str:
    """The text; of a long one its beginning and its hash, so that a file may be called so."""
    if len(text) <= MOST_NAME:
        return text
    return f"{text[: MOST_NAME - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def layout_name(layout: str) -> str:
    """A layout as part of a file name: letters without blanks, a long one with its hash."""
    words = layout.split()
    return short_text(("" if all(len(word) == 1 for word in words) else "-").join(words))


def run_folders(run_dir: Path) -> Callable[[Path], bool]:
    """What says whether a folder is a run folder: this one, also before it is written, or another.

    Args:
        run_dir: the run directory of this command.
    """
    here = run_dir.resolve()
    return lambda folder: folder == here or folder.resolve() == here or is_run_folder(folder)


def is_run_folder(folder: Path) -> bool:
    """Whether a command has written its run here, or one of several jobs its part of one."""
    job = folder.name.startswith("seed-") and (folder / "experiment.yaml").is_file()
    return job or any(all(any(folder.glob(glob)) for glob in marks) for marks in _MARKS)
