"""Command lines that a person can paste."""

import shlex
import sys
from pathlib import Path

from training.launch import launched
from utils.text import masked

# No file of a run names a machine's folders, and who reads it has an interpreter of his own.
INTERPRETER_IN_FILES = "python"


def command(script: str, run: Path, *settings: str, interpreter: str | None = None) -> str:
    """A command line that a person can paste.

    Args:
        script: one of the scripts.
        run: its first argument.
        settings: for --set.
        interpreter: `INTERPRETER_IN_FILES` for what a file says; None: the one that runs, for the
            screen.
    """
    extra = [part for setting in settings for part in ("--set", setting)]
    program = [interpreter or interpreter_typed(), _script(script)]
    return _pasted([*program, str(run), *extra])


def again() -> str:
    """This command line, to be pasted."""
    script = Path(sys.argv[0])
    program = [interpreter_typed(), _script(script.name)]
    if script.parent.name == "tools":
        program = [program[0], "-m", f"tools.{script.stem}"]
    launch = launched()
    if launch is None:
        return _pasted([*program, *sys.argv[1:]])
    torchrun = [program[0], "-m", "torch.distributed.run"]
    torchrun += ["--standalone"] if launch.machines == 1 else ["--nnodes", str(launch.machines)]
    torchrun += ["--nproc_per_node", str(launch.local_world)]
    # Behind the two dashes, since torchrun would take --run for one of its own.
    line = _pasted([*torchrun, "--", *program[1:], *sys.argv[1:]])
    remark = "  # on every machine, with the --node_rank or --rdzv options of before"
    return line if launch.machines == 1 else line + remark


def _pasted(parts: list[str]) -> str:
    """Parts as one line, without the passwords in them."""
    shown = [masked(part) for part in parts]
    line = shlex.join(shown)
    return line if shown == parts else f"{line}  # put the password in the place of ***"


def _script(name: str) -> str:
    """A script as it is reached from the current folder."""
    return str(_from_here(Path(sys.argv[0]).parent / name))


def interpreter_typed() -> str:
    """The interpreter as it was typed, or shorter from the current folder; for the screen alone.

    A process that another one started was given an absolute path. It stays, because a plain
    `python` may be another one, without the packages.
    """
    given = Path(sys.orig_argv[0])
    shown = _from_here(given)
    # Without a folder the shell would look for it elsewhere.
    return f"./{shown}" if given.is_absolute() and len(shown.parts) == 1 else str(shown)


def _from_here(path: Path) -> Path:
    """Without the current folder where the path is inside it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
