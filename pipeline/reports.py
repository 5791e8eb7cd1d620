"""The report of a run, written anew when a phase has changed what there is to tell."""

from importlib import import_module
from typing import Any

from pipeline.plan import RunPlan
from utils.files import words_of
from utils.screen import say
from utils.text import visible


def drawn(place: str, *arguments: Any) -> Any:
    """What a function draws, named `module:function`; None, with a warning, where it fails.

    Figures come last, and what was trained or chosen is kept: no failure of a font, a file of the
    run, a full disk or matplotlib, which is imported here, may take from the user the lines that
    follow, or the exit code.
    """
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)(*arguments)
    except Exception as error:  # whatever matplotlib raises
        words = f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError | OSError):
            words = words_of(error)
        say(f"warning: not drawn: {visible(words)}; all else is done and kept")
        return None


def show_drawn(what: str, place: str, *arguments: Any) -> None:
    """Print the path of what is drawn, where it can be."""
    if (path := drawn(place, *arguments)) is not None:
        print(f"{what}: {path}")


def show_report(plan: RunPlan) -> None:
    """Write RUN/report.html from the run's files and name it, unless run.figures is false."""
    if plan.experiment.run.figures:
        show_drawn("report", "report.page:write_report", plan.run_dir)
