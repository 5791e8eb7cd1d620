"""How a script ends: one line instead of a traceback for a user's mistake, and an exit code."""

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.cli import resume_command
from training.launch import is_first_to_say, launched
from training.signals import Diverged, Lost, Stopped
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
_STOPPED = "stopped by {}; the state is saved. Go on with:\n  {}"


@contextmanager
def user_errors(loads: str = "torch") -> Iterator[None]:
    """Turn ValueError and OSError into their message on stderr and exit code 2; out of memory is 3.

    Belongs around the set-up, imports included, and around trainings that it needs, which may be
    stopped or diverge. With PARNAS_TRACEBACK=1 in the environment the traceback is printed as well.
    The package that it loads is named at once: importing it takes seconds, on a cold disk half a
    minute.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path may hold what the terminal's encoding, or any, cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        launch = launched()
        if loads not in sys.modules and (launch is None or not launch.rank):
            print(f"loading {loads}", file=sys.stderr, flush=True)
        yield
    except KeyboardInterrupt:
        _complain(
            f"interrupted; what was written until then is kept. Go on with:\n  {resume_command()}"
        )
        raise SystemExit(_at_once(INTERRUPTED)) from None
    except Stopped as stopped:
        _complain(_STOPPED.format(stopped, resume_command()))
        raise SystemExit(_at_once(stopped.exit_code)) from None
    except Diverged as diverged:
        _complain(str(diverged))
        raise SystemExit(_at_once(DIVERGED)) from None
    except Lost as lost:
        _complain(f"{lost} before the first step. Again with:\n  {resume_command()}", lost=True)
        raise SystemExit(_at_once(LOST)) from None
    except ModuleNotFoundError as error:
        if error.name is None or (Path(__file__).parents[1] / error.name.split(".")[0]).exists():
            raise
        _complain(
            f"the package {error.name} is missing: run `make setup`, then use .venv/bin/python"
        )
        raise SystemExit(USER_MISTAKE) from None
    except (RuntimeError, MemoryError) as error:
        _complain_of_memory(error)
        raise SystemExit(_at_once(DIVERGED)) from None
    except (ValueError, OSError) as error:
        _print_traceback()
        _let_go_of_stdout()
        _complain(_message(error))
        raise SystemExit(_at_once(USER_MISTAKE)) from None


@dataclass
class Ending:
    """How a run ended: 0 done, 2 a mistake or a full disk, 3 diverged or memory, 128 + signal."""

    code: int = 0


@contextmanager
def run_errors() -> Iterator[Ending]:
    """Turn the known endings of a run into a line and an exit code.

    Belongs around all that follows the set-up. A context and no function that calls the run, so
    that a traceback has no frames of it. One of several processes ends here, with its code.
    """
    ending, line = Ending(), resume_command()
    try:
        yield ending
        sys.stdout.flush()
    except Stopped as stopped:
        _complain(_STOPPED.format(stopped, line))
        ending.code = stopped.exit_code
    except KeyboardInterrupt:
        _complain(f"interrupted; go on from the last checkpoint with:\n  {line}")
        ending.code = INTERRUPTED
    except Lost as lost:
        _complain(f"{lost}. Go on with:\n  {line}", lost=True)
        ending.code = LOST
    except ValueError as error:
        _print_traceback()
        _complain(_message(error))
        ending.code = USER_MISTAKE
    except Diverged as diverged:
        _complain(str(diverged))
        ending.code = DIVERGED
    except (RuntimeError, MemoryError) as error:
        _complain_of_memory(error)
        ending.code = DIVERGED
    except OSError as error:
        _let_go_of_stdout()
        _complain(f"{_message(error)}; the last whole checkpoint stays. Go on with:\n  {line}")
        ending.code = USER_MISTAKE
    _at_once(ending.code)


def refuse_several(script: str) -> None:
    """Raise ValueError where torchrun has started a script that is one process."""
    if (launch := launched()) is not None:
        raise ValueError(
            f"{script}: is one process, but torchrun has started {launch.world}; start it without "
            "torchrun (search.py and retrain.py can be several)"
        )


def _print_traceback() -> None:
    if os.environ.get("PARNAS_TRACEBACK") == "1":
        traceback.print_exc()


def _complain_of_memory(error: RuntimeError | MemoryError) -> None:
    """Print the remedies where memory ran out; any other error goes on as it is.

    torch is not imported for the name of its error, and a CPU's has no type of its own.
    """
    text = (str(error).strip() or "MemoryError").splitlines()[0]
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if not known and not any(words in text for words in _TOO_MUCH):
        raise error
    _print_traceback()
    _complain(f"{OUT_OF_MEMORY} ({visible(text):.300}): {_REMEDIES}")


def _complain(text: str, *, lost: bool = False) -> None:
    """Print a line on stderr; of several processes that have the same one, one prints it."""
    if is_first_to_say(text, lost=lost):
        print(text, file=sys.stderr, flush=True)


def _at_once(code: int) -> int:
    """The exit code of a process alone; one of several ends here."""
    if launched() is not None:
        # The interpreter's own way out might wait for a process that is gone (see Ranks.leave).
        sys.stdout.flush()
        os._exit(code)
    return code


def _let_go_of_stdout() -> None:
    """What could not be printed must not be tried again when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _message(error: ValueError | OSError) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        text = f"{os.fspath(error.filename)!s}: {error.strerror}"
    # Words from a file may stand in it, and nothing from a file steers a terminal.
    return "\n".join(visible(line) for line in text.split("\n"))
