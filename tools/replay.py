"""Make a packed run again, and say whether it came out the same.

The commands of the archive run in their order, with its experiments, seeds and threads. Before
that it is said what differs here (program, packages, processor, threads, text); then equality
cannot be expected, and only --anyway goes on. Compared are pi.npz and weights byte for byte, and
every value of the tables and results, times excepted. Started again, the same command goes on.
Replay only archives of people you trust: an experiment may name any file or address as its text.

    python -m tools.replay quickstart.zip
    python -m tools.replay quickstart.zip --check
    python -m tools.replay quickstart.zip --run runs/again --set data.files.train=my/train.txt

Ends with 0 where all is equal, with 1 where something differs.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pipeline import cli, exit_codes
from utils.text import visible

_MOST_SHOWN = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser("replay", __doc__)
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="what tools.pack wrote")
    parser.add_argument(
        "--run", type=Path, metavar="DIR", help="a new run directory (default: runs/NAME-replay)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE",
        help="override a key of every experiment, as where the text lies; may be given several "
        "times",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="read archive and text, say what differs, and stop"
    )
    parser.add_argument("--anyway", action="store_true", help="go on where something differs")
    arguments = parser.parse_args(argv)
    with exit_codes.user_errors():
        return replay(arguments)


def replay(arguments: argparse.Namespace) -> int:
    """Say what differs here, run the commands, and compare."""
    from pipeline.run_archive import begin, differences, expectations, remake, unpack

    archive, settings = arguments.archive, arguments.set
    with tempfile.TemporaryDirectory() as folder:
        manifest = unpack(archive, Path(folder))
        run = arguments.run or Path("runs") / f"{Path(visible(manifest.name)).name}-replay"
        expected = expectations(Path(folder), settings)
    for line in expected:
        print(f"differs: {line}", flush=True)
    if arguments.check:
        for command in manifest.commands:
            print(visible(command.line(Path("run"), run)))
        print(f"{archive}: whole; nothing was run")
        return 0
    if expected and not arguments.anyway:
        raise ValueError(
            f"{archive}: the same numbers cannot be expected here ({len(expected)} differences, "
            "above); --anyway makes the run all the same"
        )
    begin(archive, manifest, cli.check_run(run))
    remake(manifest, run, settings)
    found, seen = differences(manifest, run)
    print("", *found[:_MOST_SHOWN], sep="\n")
    if len(found) > _MOST_SHOWN:
        print(f"and {len(found) - _MOST_SHOWN} more files")
    verdict = f"{len(found)} differ, the first is the first line" if found else "equal"
    print(f"{run}: of {seen} files {verdict}, times excepted")
    return exit_codes.DIFFERENT if found else 0


if __name__ == "__main__":
    sys.exit(main())
