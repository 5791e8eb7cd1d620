"""Step 4 of 4: compare the chosen layout with baselines, all trained alike on the same text.

Trains the baselines and any seeds of the chosen layout that are missing, measures the forward
latency of all of them in turn, and prints the table. All choices were made on the validation text;
the table shows the test text.

    python compare.py runs/quickstart
    python compare.py runs/quickstart --seeds 0,1,2 --workers 2

Writes RUN/comparison.csv, RUN/comparison.json, RUN/report.html and the trainings in RUN/retrain/.
"""

import sys
from collections.abc import Sequence

from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__)
    cli.add_seeds(parser, "training seeds, e.g. 0,1,2 (default: compare.seeds)")
    cli.add_workers(parser, "trainings that run in parallel, each with its share of the cores")
    arguments = parser.parse_args(argv)
    if arguments.seeds is not None:
        arguments.set.append(f"compare.seeds={arguments.seeds}")
    with cli.user_errors(loads=None):
        cli.refuse_several("compare.py")
        from pipeline.experiment import carried, experiment_of
        from pipeline.run_files import record_command

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment, experiment.warnings())
        cli.loading("torch")
        from pipeline.baselines import entries_of
        from pipeline.compare import finish_comparison, train_entries
        from pipeline.plan import set_up

        plan = set_up(experiment, run_dir)
        entries = entries_of(plan)
        train_entries(plan, entries, arguments.workers)
        if argv is None:
            record_command(plan.run_dir, plan.experiment)
        finish_comparison(plan, entries)
        if len(experiment.compare.seeds) == 1:
            others = [one for one in carried(arguments) if not one.startswith("compare.seeds")]
            more = f"{cli.command('compare.py', run_dir, *others)} --seeds 0,1,2"
            print(f"to test the difference, train more seeds: {more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
