"""Which folders are runs: what stands there is no text of the user's."""

from collections.abc import Callable
from pathlib import Path

from cli import SAVED

# Each command writes one of these before anything else that could be taken for text; where a line
# has several, all must be there.
_MARKS = (
    *((saved,) for saved in SAVED),
    ("sweep/study.journal",),
    ("layouts/*/seed-*/experiment.yaml",),  # tools.layoutbench make, tools.rank --out
    ("regret.json", "seed-*/experiment.yaml"),  # tools.layoutbench search
    ("confirm.json", "*/seed-*/experiment.yaml"),  # tools.confirm
)


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
