"""Compare the derived layout with its opponents: same script, same budget, same text.

Trains the opponents (and what is not trained yet of the derived layout), measures the forward
latency of all of them in turn, and prints the table. Choices were made on the validation text;
the table is of the test text.

    python compare.py runs/quickstart
    python compare.py runs/quickstart --set 'compare.seeds=[0,1,2]'

Writes RUN/comparison.csv, RUN/comparison.json and RUN/report.html.
"""

import sys
from collections.abc import Sequence

from pipeline import cli, exit_codes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = cli.parser(__doc__).parse_args(argv)
    with exit_codes.user_errors():
        exit_codes.refuse_several("compare.py")
        from pipeline.compare import contestants, finish_comparison, train_contestants
        from pipeline.context import set_up
        from pipeline.experiment import experiment_of

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        plan = set_up(experiment, run_dir)
        entries = contestants(plan)
    with exit_codes.run_errors() as ending:
        train_contestants(plan, entries)
        finish_comparison(plan, entries)
    return ending.code


if __name__ == "__main__":
    sys.exit(main())
