"""How a command ends: one line instead of a traceback for a user's mistake, and an exit code."""

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.cli import resume_command
from training.launch import is_first_to_say, launched
from training.signals import Diverged, Lost, Stopped
from utils.files import words_of
from utils.text import visible

# As diff and cmp have it: a comparison was made, and found something.
DIFFERENT = 1
USER_MISTAKE = 2
DIVERGED = 3  # or out of memory, which the message begins with
OUT_OF_MEMORY = "out of memory"
LOST = 4
INTERRUPTED = 130
_REMEDIES = (
    "set run.recompute=true or raise run.micro_batches, with which a training goes on where it was;"
    " or lower data.batch or set run.precision=bfloat16, in another --run directory"
)
# What torch says on a CPU.
_TOO_MUCH = ("can't allocate memory", "Storage size calculation overflowed")


@contextmanager
def user_errors(loads: str = "torch") -> Iterator[None]:
    """Turn the known endings of a command into a line on stderr and SystemExit with their code.

    Belongs around all of it, imports included. With PARNAS_TRACEBACK=1 in the environment the
    traceback is printed as well. The package that it loads is named at once: importing it takes
    seconds, on a cold disk half a minute. One of several processes ends here.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path may hold what the terminal's encoding, or any, cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        launch = launched()
        if loads not in sys.modules and (launch is None or not launch.rank):
            print(f"loading {loads}", file=sys.stderr, flush=True)
        yield
        sys.stdout.flush()
    except BaseException as error:
        if (ending := _ending(error)) is None:
            raise
        words, code = ending
        if os.environ.get("PARNAS_TRACEBACK") == "1":
            traceback.print_exc()
        if isinstance(error, OSError):
            _let_go_of_stdout()
        # Of several processes that have the same line, one prints it.
        if is_first_to_say(words, lost=isinstance(error, Lost)):
            print(words, file=sys.stderr, flush=True)
        if launched() is not None:
            # The interpreter's own way out might wait for a process that is gone.
            sys.stdout.flush()
            os._exit(code)
        raise SystemExit(code) from None


def _ending(error: BaseException) -> tuple[str, int] | None:
    """What is said of an ending, and its exit code; None of an error of our own."""
    go_on = f"Go on with:\n  {resume_command()}"
    match error:
        case Stopped():
            return f"stopped by {error}; the state is saved. {go_on}", error.exit_code
        case KeyboardInterrupt():
            return f"interrupted; what was written until then is kept. {go_on}", INTERRUPTED
        case Lost():
            return f"{error}. {go_on}", LOST
        case Diverged():
            return str(error), DIVERGED
        case ModuleNotFoundError(name=str(name)) if not _is_ours(name):
            line = f"the package {name} is missing: run `make setup`, then use .venv/bin/python"
            return line, USER_MISTAKE
        case OSError():
            return visible(words_of(error)), USER_MISTAKE
        case ValueError():
            # Words from a file may stand in it, and nothing from a file steers a terminal.
            lines = (str(error) or type(error).__name__).split("\n")
            return "\n".join(map(visible, lines)), USER_MISTAKE
        case RuntimeError() | MemoryError():
            text = (str(error).strip() or "MemoryError").splitlines()[0]
            # torch is not imported for the name of its error, and a CPU's has no type of its own.
            known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
            if known or any(words in text for words in _TOO_MUCH):
                return f"{OUT_OF_MEMORY} ({visible(text):.300}): {_REMEDIES}", DIVERGED
    return None


def _is_ours(module: str) -> bool:
    return (Path(__file__).parents[1] / module.split(".")[0]).exists()


def _let_go_of_stdout() -> None:
    """What could not be printed must not be tried again when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def refuse_several(script: str) -> None:
    """Raise ValueError where torchrun has started a script that is one process."""
    if (launch := launched()) is not None:
        raise ValueError(
            f"{script}: is one process, but torchrun has started {launch.world}; start it without "
            "torchrun (search.py and retrain.py can be several)"
        )
