"""The arguments that every script takes, and one line instead of a traceback for a user's mistake.

A script parses its arguments before it imports anything heavy, so that `--help` is instant.
"""

import argparse
import io
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training.launch import Lost, is_first_to_say, launched
from training.passwords import masked

USER_MISTAKE = 2
DIVERGED = 3
LOST = 4
SAVED = (
    "search/seed-*/experiment.yaml",
    "retrain/*/seed-*/experiment.yaml",
    "architectures/experiment.yaml",
    "sweep/experiment.yaml",
)
# What a command with workers looks for first: the sweep's own, also where search.py ran there too.
SAVED_OF_SWEEP = (SAVED[-1], *SAVED[:-1])
INTERRUPTED = 130


@dataclass(frozen=True)
class Place:
    """The experiment file that a command reads and the run directory that it writes to."""

    file: Path
    run: Path


def parser(
    doc: str | None,
    *,
    experiment: str = "experiment",
    writes: bool = True,
    saved: Sequence[str] = SAVED,
) -> argparse.ArgumentParser:
    """The argument parser of a script.

    Args:
        doc: the script's docstring; `--help` shows it as it stands.
        experiment: what the positional argument is called in `--help`; the attribute is always
            `experiment`.
        writes: whether it writes to a run directory, which `--run` names.
        saved: where in a run directory its experiment may lie, the first that is there counts.
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    made.add_argument(
        "experiment",
        type=Path,
        metavar=experiment,
        help="a YAML file, or a run directory that holds a saved one",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one key, for example search.tau.end=0.1; may be given several times",
    )
    made.set_defaults(run=None, saved=saved)
    if writes:
        made.add_argument(
            "--run", type=Path, metavar="DIR", help="the run directory (default: runs/<file name>)"
        )
    made.add_argument("--check", action="store_true", help="validate the experiment and stop")
    return made


def tool_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The argument parser of a tool that reads no experiment; `--help` shows its docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m tools.{name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def locate(arguments: argparse.Namespace) -> Place:
    """The experiment file and the run directory of parsed arguments.

    Raises:
        ValueError: the positional argument is a directory without a saved experiment.
    """
    given: Path = arguments.experiment
    if given.is_dir():
        return Place(find_experiment(given, arguments.saved), arguments.run or given)
    return Place(given, arguments.run or Path("runs") / given.stem)


def find_experiment(run: Path, patterns: Sequence[str] = SAVED) -> Path:
    """The experiment that a run directory saved: of search, else of a retraining; lowest seed.

    Args:
        run: the run directory.
        patterns: where it may lie, the first that is there counts.

    Raises:
        ValueError: there is none.
    """
    for pattern in patterns:
        saved = sorted(run.glob(pattern), key=_seed_then_name)
        if saved:
            return saved[0]
    raise ValueError(
        f"{run}: a directory without {' or '.join(SAVED)}; "
        "give a YAML file, or run search.py or retrain.py first"
    )


def _seed_then_name(saved: Path) -> tuple[float, str]:
    digits = saved.parent.name.removeprefix("seed-")
    return (float(digits) if digits.isdecimal() else float("inf"), str(saved))


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn ValueError and OSError into their message on stderr and exit code 2.

    Belongs around the set-up stage only: past it the same errors are our own mistakes. With
    PARNAS_TRACEBACK=1 in the environment the traceback is printed as well.

    Raises:
        SystemExit: with code 2.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path may hold what the terminal's encoding, or any, cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    except KeyboardInterrupt:
        _complain(f"interrupted before the first step; nothing was lost. Again with:\n  {_again()}")
        raise SystemExit(_at_once(INTERRUPTED)) from None
    except Lost as lost:
        _complain(f"{lost} before the first step. Again with:\n  {_again()}", lost=True)
        raise SystemExit(_at_once(LOST)) from None
    except ModuleNotFoundError as error:
        if error.name is None or (Path(__file__).parent / error.name.split(".")[0]).exists():
            raise
        _complain(
            f"the package {error.name} is missing: run `make setup`, then use .venv/bin/python"
        )
        raise SystemExit(USER_MISTAKE) from None
    except (ValueError, OSError) as error:
        if os.environ.get("PARNAS_TRACEBACK") == "1":
            traceback.print_exc()
        _let_go_of_stdout()
        _complain(_message(error))
        raise SystemExit(_at_once(USER_MISTAKE)) from None


def _complain(text: str, *, lost: bool = False) -> None:
    """Print a line on stderr; of several processes that have the same one, one prints it."""
    if is_first_to_say(text, lost=lost):
        print(text, file=sys.stderr, flush=True)


def _at_once(code: int) -> int:
    """The exit code of a process alone; one of several ends here.

    The interpreter's own way out might wait for a process that is gone (see Ranks.leave).
    """
    if launched() is not None:
        sys.stdout.flush()
        os._exit(code)
    return code


def refuse_several(script: str) -> None:
    """Raise ValueError where torchrun has started a script that is one process."""
    if (launch := launched()) is not None:
        raise ValueError(
            f"{script}: is one process, but torchrun has started {launch.world}; start it without "
            "torchrun (search.py and retrain.py can be several)"
        )


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
    return "".join(
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text
    )


def add_tensorboard(made: argparse.ArgumentParser) -> None:
    """The flag of the two phases that train."""
    made.add_argument(
        "--tensorboard",
        dest="set",
        action="append_const",
        const="run.tensorboard=true",
        help="also write TensorBoard event files (optional extra)",
    )


def add_seeds(made: argparse.ArgumentParser, words: str) -> None:
    """The option of several seeds."""
    made.add_argument("--seeds", type=_seeds, metavar="N,N", help=words)


def _seeds(text: str) -> list[int]:
    seeds = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(seeds) < text.count(",") + 1 or len(set(seeds)) < len(seeds) or max(seeds) >= 2**31:
        raise argparse.ArgumentTypeError(f"expected different seeds like 0,1,2, found {text!r}")
    return seeds


def is_lowest_seed(folder: Path) -> bool:
    """Whether a seed folder is the one that the next command would take by itself."""
    return min(folder.parent.glob("seed-*"), key=_seed_then_name_of) == folder


def _seed_then_name_of(folder: Path) -> tuple[float, str]:
    return _seed_then_name(folder / "experiment.yaml")


def command(script: str, run: Path, *settings: str) -> str:
    """A command line that a person can paste."""
    extra = [part for setting in settings for part in ("--set", setting)]
    return _pasted([*_program(script), str(run), *extra])


def _pasted(parts: list[str]) -> str:
    """Parts as one line, without the passwords in them."""
    shown = [masked(part) for part in parts]
    line = shlex.join(shown)
    return line if shown == parts else f"{line}  # put the password in the place of ***"


def _program(script: str) -> list[str]:
    """Interpreter and script as they are reached from the current folder."""
    beside = Path(sys.argv[0]).parent / script
    venv = Path(sys.executable)
    inside = venv.is_relative_to(Path.cwd())
    return [str(venv.relative_to(Path.cwd()) if inside else venv), str(beside)]


def checked(file: Path) -> int:
    """Say that an experiment is valid; the exit code of --check."""
    if (launch := launched()) is None or not launch.rank:
        print(f"{file}: valid")
    return 0


def _again() -> str:
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


def run_to_end(run: Callable[[], None], then: Callable[[], object]) -> int:
    """Run a phase and what follows it; turn its known endings into a line and an exit code.

    Returns:
        0 done, 2 a file could not be written, 3 diverged, 128 + the signal's number stopped. Where
        another process of the run is lost, this one ends here, with 4.
    """
    from training.divergence import Diverged
    from training.signals import Stopped

    again = _again()
    try:
        run()
        then()
        sys.stdout.flush()
    except Stopped as stopped:
        _complain(f"stopped by {stopped}; the state is saved. Go on with:\n  {again}")
        return _at_once(stopped.exit_code)
    except KeyboardInterrupt:
        _complain(f"interrupted; go on from the last checkpoint with:\n  {again}")
        return _at_once(INTERRUPTED)
    except Lost as lost:
        _complain(f"{lost}. Go on with:\n  {again}", lost=True)
        return _at_once(LOST)
    except ValueError as error:
        if os.environ.get("PARNAS_TRACEBACK") == "1":
            traceback.print_exc()
        _complain(_message(error))
        return _at_once(USER_MISTAKE)
    except Diverged as diverged:
        _complain(str(diverged))
        return _at_once(DIVERGED)
    except OSError as error:
        _let_go_of_stdout()
        _complain(f"{_message(error)}; the last whole checkpoint stays. Go on with:\n  {again}")
        return _at_once(USER_MISTAKE)
    return _at_once(0)
