"""Put a run into one archive: its experiments, commands, results, and hashes of its weights.

The archive is a zip file that says how the run was made and what it found. The same run gives the
same bytes. --weights puts the weights in too. tools.replay makes the run again from it.

    python -m tools.pack runs/quickstart
    python -m tools.pack runs/quickstart results/quickstart.zip --weights
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline import cli, exit_codes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser("pack", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    parser.add_argument(
        "out", type=Path, nargs="?", metavar="OUT", help="the archive (default: RUN.zip)"
    )
    parser.add_argument(
        "--weights", action="store_true", help="also the weights of models and checkpoints"
    )
    arguments = parser.parse_args(argv)
    with exit_codes.user_errors():
        from pipeline.run_archive import write_archive

        run = arguments.run
        # Not with_suffix: a run may be called tau0.1.
        out = arguments.out or run.absolute().with_name(f"{run.absolute().name}.zip")
        manifest = write_archive(run, out, weights=arguments.weights)
        for command in manifest.commands:
            print(command.line(Path("run"), Path("runs") / manifest.name))
        print(f"{len(manifest.files)} files, {len(manifest.weights)} of weights", end="")
        print(f"{'' if arguments.weights else ' by their hashes'}; {out.stat().st_size:,} bytes")
        print(f"archive: {arguments.out or run.with_name(f'{run.name}.zip')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
