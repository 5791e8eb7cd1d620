"""Command lines that a person can paste."""

import shlex
import sys
from pathlib import Path

from training.launch import launched
from training.passwords import masked


def command(script: str, run: Path, *settings: str) -> str:
    """A command line that a person can paste."""
    extra = [part for setting in settings for part in ("--set", setting)]
    return _pasted([*_program(script), str(run), *extra])


def again() -> str:
    """This command line, to be pasted."""
    script = Path(sys.argv[0])
    program = _program(script.name)
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


def _program(script: str) -> list[str]:
    """Interpreter and script as they are reached from the current folder."""
    return [_interpreter(), str(_from_here(Path(sys.argv[0]).parent / script))]


def _interpreter() -> str:
    """As it was typed; what stands elsewhere is `python`, because no file of a run names a machine.

    A process that another one started was given an absolute path, which nobody typed.
    """
    typed = _from_here(Path(sys.orig_argv[0]))
    return "python" if typed.is_absolute() else str(typed)


def _from_here(path: Path) -> Path:
    """Without the current folder where the path is inside it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
