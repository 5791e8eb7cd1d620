"""The report of a run, written anew when a phase has changed what there is to tell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pipeline.context import RunPlan
from utils.files import words_of
from utils.screen import say
from utils.text import visible

Drawn = TypeVar("Drawn")


def drawn(write: Callable[..., Drawn], *arguments: Any) -> Drawn | None:
    """What `write` draws; None, with a warning, where it cannot be drawn.

    Figures come last, and what was trained or chosen is kept: no failure of a font, a file of the
    run, a full disk or matplotlib may take from the user the lines that follow, or the exit code.
    """
    try:
        return write(*arguments)
    except Exception as error:  # whatever matplotlib raises
        words = f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError | OSError):
            words = words_of(error)
        say(f"warning: not drawn: {visible(words)}; all else is done and kept")
        return None


def show_report(plan: RunPlan) -> None:
    """Write RUN/report.html from the run's files and name it, unless run.figures is false."""
    if plan.experiment.run.figures and (path := drawn(_report, plan.run_dir)) is not None:
        print(f"report: {path}")


def _report(run_dir: Path) -> Path:
    from report.page import write_report

    return write_report(run_dir)
