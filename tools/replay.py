"""Make a packed run again, and say whether it came out byte for byte the same.

The commands of the archive run in their order, with its experiments, seeds and threads. Before
that it is said what differs here (program, packages, processor, threads, text); then equality
cannot be expected, and only --anyway goes on. Compared are pi.npz, every tensor of the weights, and
every row and column of the tables, times excepted. Where something differs, its first row is named.
Started again, the same command goes on. Replay only archives of people you trust: an experiment may
name any file or address as its text.

    python -m tools.replay quickstart.zip
    python -m tools.replay quickstart.zip --check
    python -m tools.replay quickstart.zip --run runs/again --set data.files.train=my/train.txt

Ends with 0 where all is equal, with 1 where something differs.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli, exit_codes
from utils.text import shorten, visible

if TYPE_CHECKING:
    from pipeline.pack_file import Pack

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
        from pipeline.pack_file import opened_pack

        with opened_pack(arguments.archive) as pack:
            return replay(pack, arguments)


def replay(pack: "Pack", arguments: argparse.Namespace) -> int:
    """Say what differs here, run the commands, and compare."""
    from pipeline.replaying import Ended, begin, differences, expectations, remake
    from utils.archives import seal

    settings, run = arguments.set, arguments.run
    if run is None:
        run = Path("runs") / f"{Path(pack.manifest.name).name}-replay"
    cli.check_run(run)
    expected = expectations(pack, settings)
    for note in [*(f"differs: {line}" for line in expected), *map("note: {}".format, notes(pack))]:
        print(note, flush=True)
    if arguments.check:
        for command in pack.manifest.commands:
            print(visible(command.line(Path("run"), run)))
        print(f"{arguments.archive}: whole; nothing was run")
        return 0
    if expected and not arguments.anyway:
        raise ValueError(
            f"{arguments.archive}: the same numbers cannot be expected here ({len(expected)} "
            "differences, above); --anyway makes the run all the same"
        )
    begin(pack, run, settings, seal(arguments.archive))
    try:
        remake(pack, run, settings)
    except Ended as ended:
        print(ended, file=sys.stderr)
        return ended.code
    found, counts = differences(pack, run)
    print()
    for difference in found[:_MOST_SHOWN]:
        print(difference)
    if len(found) > _MOST_SHOWN:
        print(f"and {len(found) - _MOST_SHOWN} more files")
    compared = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"compared: {compared}")
    verdict = f"{len(found)} files differ, the first is the first line" if found else "equal"
    print(f"{run}: {verdict}, times excepted")
    return exit_codes.DIFFERENT if found else 0


def notes(pack: "Pack") -> list[str]:
    """What the archive says to people, made harmless for a terminal."""
    return [visible(shorten(note, 400)) for note in pack.manifest.notes]


if __name__ == "__main__":
    sys.exit(main())
