"""Is one experiment better than another? Both searched, derived and retrained with fresh seeds.

The best of many trials looks better than it is, because it was chosen for it. So give seeds that
took no part in the choice. The test split is read here for the first time; pairs share a seed.
Started again, the same command goes on.

    python -m tools.confirm runs/sweep_tau/best_no_slower.yaml configs/sweep_tau.yaml --workers 2
    python -m tools.confirm a.yaml b.yaml --seeds 100,101,102 --run runs/a_or_b

Writes RUN/NAME/seed-N/ for each, RUN/confirm.csv and RUN/confirm.json.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline import cli, exit_codes

SEEDS = (100, 101, 102, 103, 104)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    files = arguments.experiments
    with exit_codes.user_errors():
        from pipeline.confirm import (
            Side,
            check_seeds,
            check_sides,
            check_text,
            finish_sides,
            train_sides,
        )
        from pipeline.experiment import load_experiment
        from pipeline.plan import set_up
        from training.signals import StopRequest

        sides = [
            Side(name, load_experiment(file, arguments.set))
            for name, file in zip(names_of(files), files, strict=True)
        ]
        check_sides(*sides)
        check_seeds(sides, arguments.seeds)
        plan = set_up(sides[1].experiment, cli.check_run(arguments.run))
        check_text(plan.prepared.tokenizer)
        stop = StopRequest()

        with stop.listening():
            train_sides(sides, arguments.seeds, arguments.run, workers=arguments.workers, stop=stop)
        print(finish_sides(plan, sides, arguments.seeds, arguments.run))
        print(f"table: {arguments.run / 'confirm.csv'}")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("confirm", __doc__)
    add = parser.add_argument
    add("experiments", nargs=2, type=Path, metavar="experiment", help="YAML files")
    cli.add_seeds(parser, "seeds that took no part in the choice", SEEDS)
    cli.add_workers(parser)
    add("--run", type=Path, default=Path("runs/confirm"), metavar="DIR", help="the run folder")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of both")
    return parser.parse_args(argv)


def names_of(files: Sequence[Path]) -> list[str]:
    """What the two are called: the names of their files, with a number where they are alike."""
    one, two = (file.stem for file in files)
    return [one, two] if one != two else [f"{one}-1", f"{two}-2"]


if __name__ == "__main__":
    sys.exit(main())
