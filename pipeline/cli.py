"""What all commands have alike: arguments, where a run lies, how they end and with which code.

A script parses its arguments before it imports anything heavy, so that `--help` is instant.
"""

import argparse
import io
import math
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from training.launch import is_first_to_say, launched
from training.signals import Diverged, Lost, Stopped
from utils.files import words_of
from utils.text import masked, visible

# No file of a run names a machine's folders, and who reads it has an interpreter of his own.
INTERPRETER_IN_FILES = "python"
SAVED = (
    "search/seed-*/experiment.yaml",
    "retrain/*/seed-*/experiment.yaml",
    "architectures/experiment.yaml",
    "sweep/experiment.yaml",
)
# What a command with workers looks for first: the sweep's own, also where search.py ran there too.
SAVED_OF_SWEEP = (SAVED[-1], *SAVED[:-1])
# Each command writes one of these before anything else that could be taken for text.
_MARKS = (
    *SAVED,
    "sweep/study.db",
    "jobs/*/seed-*/experiment.yaml",
    "*/seed-*/job.log",  # tools.confirm
    *("trainings/half/identity.json", "trainings/full/identity.json", "shrink.jsonl"),
)
# Where these lie, a folder is a part of a run.
_PARTS = ("identity.json", "seed-*/identity.json")
_MOST_WORKERS = 1024
# As diff and cmp have it: a comparison was made, and found something.
DIFFERENT = 1
USER_MISTAKE = 2
DIVERGED = 3  # or out of memory, which the message begins with
OUT_OF_MEMORY = "out of memory"
LOST = 4
INTERRUPTED = 130
_REMEDIES = (
    "set run.recompute=true, raise run.micro_batches or lower --workers, with which a training "
    "resumes where it was; or lower data.batch or set run.precision=bfloat16, in another --run "
    "directory"
)
# What torch says on a CPU.
_TOO_MUCH = ("can't allocate memory", "Storage size calculation overflowed")


def command(
    script: str,
    target: Path,
    *settings: str,
    run: Path | None = None,
    interpreter: str | None = None,
) -> str:
    """A command line that a person can paste, for an experiment or run, with settings for --set.

    For the screen with the interpreter that runs, for a file with `INTERPRETER_IN_FILES`.
    """
    extra = [part for setting in settings for part in ("--set", setting)]
    extra += [] if run is None else ["--run", str(run)]
    program = [interpreter or interpreter_typed(), _script(script)]
    return _pasted([*program, str(target), *extra])


def resume_command(interpreter: str | None = None) -> str:
    """This command line, to be pasted; for a file with `INTERPRETER_IN_FILES`."""
    script = Path(sys.argv[0])
    program = [interpreter or interpreter_typed(), _script(script.name)]
    if script.parent.name in ("tools", "benchmarks"):
        program = [program[0], "-m", f"{script.parent.name}.{script.stem}"]
    elif script.stem == "__main__":
        program = [program[0], "-m", f"benchmarks.{script.parent.name}"]
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
    return str(_from_here(Path(sys.argv[0]).parent / name))


def interpreter_typed() -> str:
    """The interpreter as it was typed, or shorter from the current folder; for the screen alone.

    A process that another one started was given an absolute path. It stays, because a plain
    `python` may be another one, without the packages.
    """
    return str(_from_here(Path(sys.orig_argv[0])))


def _from_here(path: Path) -> Path:
    """The path without the current folder, where it lies inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def parser(doc: str | None, *, writes: bool = True, saved: Sequence[str] = SAVED) -> "Parser":
    """The argument parser of a script, which shows its docstring.

    One that `writes` has `--run`; `saved` is where in a run directory its experiment may lie.
    """
    options = tool_parser(None, doc)
    options.add_argument(
        "experiment", type=Path, help="a YAML file, or a run directory that holds a saved one"
    )
    options.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one key, e.g. search.tau.end=0.1; repeatable (all keys: docs/options.md)",
    )
    options.set_defaults(run=None, saved=saved)
    if writes:
        options.add_argument(
            "--run", type=Path, metavar="DIR", help="the run directory (default: runs/<file name>)"
        )
    options.add_argument(
        "--check",
        action="store_true",
        help="check keys, values and that the files exist, then stop",
    )
    return options


class Parser(argparse.ArgumentParser):
    """A parser whose refusals are one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line."""
        self.exit(2, f"{self.prog}: {message}; --help says more\n")


def tool_parser(name: str | None, doc: str | None) -> Parser:
    """The argument parser of a tool that reads no experiment; `--help` shows its docstring."""
    return Parser(
        prog=None if name is None else f"python -m tools.{name}",
        description=doc,
        formatter_class=HelpWithDefaults,
        allow_abbrev=False,
    )


def locate(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """The experiment file and the run directory of parsed arguments."""
    path: Path = arguments.experiment
    if path.is_dir() and (saved := next(_saved(path, arguments.saved), None)) is not None:
        return saved, check_run(arguments.run or path)
    if path.is_dir():
        raise ValueError(
            f"{path}: a directory without {' or '.join(SAVED)}; "
            "give a YAML file, or run search.py or retrain.py first"
        )
    if not path.exists() and path.suffix not in (".yaml", ".yml"):
        raise ValueError(
            f"{path}: no such file or run folder; give the experiment's YAML file, which begins one"
        )
    return path, check_run(arguments.run or Path("runs") / path.stem)


def check_run(run: Path) -> Path:
    """The run directory: a new or empty one, or one that commands wrote.

    ValueError where it is anything else: commands replace and remove files there.
    """
    taken = next(path for path in (run, *run.absolute().parents) if path.exists())
    if not taken.is_dir():
        raise ValueError(f"--run {run}: {taken} is a file; give a directory")
    if (why := _why_no_run(run)) is not None:
        raise ValueError(
            f"--run {run}: {why}; commands replace and remove files in their run directory: "
            "move what is there away, or give another one"
        )
    return run


def _why_no_run(folder: Path) -> str | None:
    if (folder / ".git").exists():
        return "is a git repository"
    if any(any(folder.glob(glob)) for glob in _PARTS):
        return "is a part of a run"
    if is_run_folder(folder):
        return None
    # A command that was stopped at its very start leaves its lock, or a file that is half written.
    files = (path for path in folder.rglob("*") if not path.is_dir())
    other = next((path for path in files if not path.name.endswith(("lock", ".tmp"))), None)
    return None if other is None else f"holds {other.relative_to(folder)}, and is not a run"


def is_run_folder(folder: Path) -> bool:
    """Whether a command has written its run here, or one of several jobs its part of one."""
    job = folder.name.startswith("seed-") and (folder / "experiment.yaml").is_file()
    return job or any(any(folder.glob(glob)) for glob in _MARKS)


def _saved(run: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Yield the experiments that a run directory saved: by pattern, then the lowest seed first."""
    for pattern in patterns:
        found = ((path.parent.name, path) for path in run.glob(pattern))
        yield from (path for _, path in sorted(found, key=lambda pair: (len(pair[0]), *pair)))


def add_seeds(parser: Parser, words: str, default: Sequence[int] | None = None) -> None:
    """The option of several seeds: `0,1,2`."""
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=None if default is None else list(default),
        metavar="N,N",
        help=words,
    )


def number_from(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option that is a whole number, from `least` on or to `most`."""
    wanted = f"a number from {least}" + ("" if most is None else f" to {most}")

    def number(text: str) -> int:
        # Python reads no number of thousands of digits.
        if not text.isdecimal() or len(text) > 18 or not least <= int(text) <= (most or math.inf):
            raise argparse.ArgumentTypeError(f"expected {wanted}, found {text!r:.80}")
        return int(text)

    return number


def file_to_write(text: str) -> Path:
    """The type of an option that names a new file: one that is there may be a text or a model's."""
    path = Path(text)
    if path.exists() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: must be a new file in an existing folder")
    return path


def add_workers(parser: Parser, help_text: str = "runs in parallel") -> None:
    """The option `--workers`: how many runs at a time."""
    kind = number_from(1, _MOST_WORKERS)
    parser.add_argument("--workers", type=kind, default=1, metavar="N", help=help_text)


def _seeds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    seeds = [int(part) for part in parts if part.isdecimal()]
    if len(seeds) < len(parts) or len(set(seeds)) < len(seeds) or max(seeds) >= 2**31:
        raise argparse.ArgumentTypeError(
            f"expected different seeds like 0,1,2, each from 0 and below 2^31, found {text!r:.80}"
        )
    return seeds


def checked(file: Path, warnings: Sequence[str] = ()) -> int:
    """Say that an experiment is valid, and what is seldom meant; the exit code of --check."""
    if (launch := launched()) is None or not launch.rank:
        for line in warnings:
            print(line)
        print(f"{file}: valid; no text was read and nothing was run")
    return 0


class HelpWithDefaults(argparse.RawDescriptionHelpFormatter):
    """`--help` that shows the docstring as it stands and what each option is where it is left out.

    A default that is no value but a rule (None) must be said by the option's help itself.
    """

    def _get_help_string(self, action: argparse.Action) -> str | None:
        words, default = action.help or "", action.default
        if default in (None, [], argparse.SUPPRESS) or action.nargs == 0 or "default" in words:
            return words
        # As it is typed.
        between = "," if action.nargs is None else " "
        shown = between.join(map(str, default)) if isinstance(default, list) else default
        return f"{words} (default: {shown})".strip()


@contextmanager
def user_errors(loads: str | None = "torch") -> Iterator[None]:
    """Turn the known endings of a command into a line on stderr and SystemExit with their code.

    Belongs around all of it, imports included. With PARNAS_TRACEBACK=1 in the environment the
    traceback is printed as well. What it `loads` is named first; None: what a command says itself
    once it knows that it needs it. One of several processes ends here.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # One that was closed: a file of ours would get its number, and what is printed.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path may hold what the terminal's encoding, or any, cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    code = 0
    try:
        if loads is not None:
            loading(loads)
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
        if launched() is None:
            raise SystemExit(code) from None
    if launched() is not None:
        # At the interpreter's end a thread of gloo may hang, or abort a training that is done.
        sys.stdout.flush()
        os._exit(code)


def loading(package: str) -> None:
    """Name a package before it is imported, which takes seconds, on a cold disk half a minute."""
    if package not in sys.modules and ((launch := launched()) is None or not launch.rank):
        print(f"loading {package}", file=sys.stderr, flush=True)
    if package == "torch":
        # Torch would swallow a Ctrl-C in the midst of it, and go on with half of it.
        import numpy  # noqa: F401


def _ending(error: BaseException) -> tuple[str, int] | None:
    """What is said of an ending, and its exit code; None of an error of our own."""
    go_on = f"Resume with:\n  {resume_command()}"
    match error:
        case Stopped():
            return f"stopped by {error}; the state is saved. {go_on}", error.exit_code
        case KeyboardInterrupt():
            return f"interrupted; what was written is kept. {go_on}", INTERRUPTED
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
                return f"{OUT_OF_MEMORY} ({visible(text):.200}): {_REMEDIES}", DIVERGED
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
