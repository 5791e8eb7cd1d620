"""Every layout of one small model trained alone: the ground truth for what a search says.

    python -m tools.layoutbench make configs/layoutbench.yaml --workers 2
    python -m tools.layoutbench make configs/layoutbench.yaml --seeds 0 1 --run runs/layoutbench

make: trains all layouts of the experiment's candidates and slots; started again it goes on. Writes
RUN/layoutbench.csv and RUN/layoutbench.json, what the rows belong to.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    return make(arguments)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    made = cli.tool_parser("layoutbench", __doc__)
    commands = made.add_subparsers(dest="command", required=True, metavar="make")
    one = commands.add_parser("make", help="train all layouts", allow_abbrev=False)
    one.add_argument("experiment", type=Path, help="a YAML file")
    one.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override")
    one.add_argument("--seeds", nargs="+", type=int, default=[0, 1], metavar="N")
    one.add_argument("--workers", type=int, default=1, metavar="N", help="trainings at a time")
    one.add_argument("--run", type=Path, default=Path("runs/layoutbench"), metavar="DIR")
    given = made.parse_args(argv)
    if given.workers < 1:
        made.error(f"--workers: expected 1 or more, found {given.workers}")
    if len(set(given.seeds)) < len(given.seeds) or min(given.seeds) < 0:
        made.error(f"--seeds: expected different seeds from 0, found {given.seeds}")
    return given


def make(arguments: argparse.Namespace) -> int:
    """Train what is missing."""
    with cli.user_errors():
        from assembly.layoutbench import alphabet, make_table
        from assembly.workbench import set_up
        from experiment import load_experiment
        from nas.layout_table import all_layouts
        from training.signals import StopRequest

        experiment = load_experiment(arguments.experiment, arguments.set)
        bench = set_up(experiment, arguments.run)
        layouts = all_layouts(alphabet(bench), experiment.model.slots)
        stop = StopRequest()

    def run() -> None:
        with stop.listening():
            made = make_table(bench, layouts, arguments.seeds, workers=arguments.workers, stop=stop)
        print(f"table: {made}")

    return cli.run_to_end(run, then=lambda: None)


if __name__ == "__main__":
    sys.exit(main())
