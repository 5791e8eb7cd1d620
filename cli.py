"""The arguments that every script takes, and which experiment and run directory they name.

A script parses its arguments before it imports anything heavy, so that `--help` is instant.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.launch import launched

SAVED = (
    "search/seed-*/experiment.yaml",
    "retrain/*/seed-*/experiment.yaml",
    "architectures/experiment.yaml",
    "sweep/experiment.yaml",
)
# What a command with workers looks for first: the sweep's own, also where search.py ran there too.
SAVED_OF_SWEEP = (SAVED[-1], *SAVED[:-1])


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
    made.add_argument(
        "--check", action="store_true", help="check the experiment's keys and values, and stop"
    )
    return made


def tool_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The argument parser of a tool that reads no experiment; `--help` shows its docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m tools.{name}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
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


def checked(file: Path) -> int:
    """Say that an experiment is valid; the exit code of --check."""
    if (launch := launched()) is None or not launch.rank:
        print(f"{file}: valid; no text was read and nothing was run")
    return 0
