"""Is one experiment better than another? Runs both whole with fresh seeds.

The best of many trials looks better than it is, because it was chosen for that. So give seeds that
were not used in the choice. The test text is read here for the first time; pairs share a seed. The
same command resumes an interrupted run.

    python -m tools.confirm runs/sweep_quick/best.yaml configs/sweep_quick.yaml --workers 2
    python -m tools.confirm a.yaml b.yaml --seeds 100,101,102 --run runs/a_or_b

Writes RUN/NAME/seed-N/ for each, RUN/confirm.csv and RUN/confirm.json.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline import cli

SEEDS = (100, 101, 102, 103, 104)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser("confirm", __doc__)
    add = parser.add_argument
    add("experiments", nargs=2, type=Path, metavar="experiment", help="YAML files")
    cli.add_seeds(parser, "seeds that were not used in the choice", SEEDS)
    cli.add_workers(parser)
    add("--run", type=Path, default=Path("runs/confirm"), metavar="DIR", help="the run folder")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of both")
    arguments = parser.parse_args(argv)
    files = arguments.experiments
    with cli.user_errors():
        from pipeline.confirm import check_sides, finish_sides, plan_sides, train_sides
        from pipeline.experiment import load_experiment
        from training.signals import StopRequest

        sides = {
            name: load_experiment(file, arguments.set)
            for name, file in zip(names_of(files), files, strict=True)
        }
        check_sides(sides, arguments.seeds)
        plan = plan_sides(sides, cli.check_run(arguments.run))
        with StopRequest().listening() as stop:
            train_sides(sides, arguments.seeds, arguments.run, workers=arguments.workers, stop=stop)
        print(finish_sides(plan, sides, arguments.seeds, arguments.run))
        print(f"table: {arguments.run / 'confirm.csv'}")
    return 0


def names_of(files: Sequence[Path]) -> list[str]:
    """What the two are called: the names of their files, with a number where they are alike."""
    one, two = (file.stem for file in files)
    return [one, two] if one != two else [f"{one}-1", f"{two}-2"]


if __name__ == "__main__":
    sys.exit(main())
