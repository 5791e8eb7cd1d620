"""Step 1 of 4: train the SuperNet and record the probability of every candidate in each block.

Each block of the SuperNet holds all candidates (attention, dense, identity, ...). Their weights and
the architecture parameters alpha are trained together; pi = softmax(alpha) is recorded at every
step. An interrupted search resumes from its last checkpoint when the same command is given again.

    python search.py configs/quickstart.yaml
    python search.py configs/quickstart.yaml --set search.tau.end=0.1 --run runs/tau01
    python search.py configs/quickstart.yaml --seeds 0,1,2
    torchrun --nproc_per_node 2 -- search.py configs/quickstart.yaml

Writes RUN/search/seed-N/: experiment.yaml, environment.json, metrics.jsonl, train.log, pi.npz,
pi.csv, figures/; and RUN/report.html. With several --seeds, RUN/search/figures/ shows how much they
differ. Next: python derive.py RUN
"""

import sys
from collections.abc import Sequence

from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__)
    cli.add_seeds(parser, "several searches, e.g. 0,1,2 (default: run.seed alone)")
    cli.add_workers(parser, "searches that run in parallel, each with its share of the cores")
    arguments = parser.parse_args(argv)
    with cli.user_errors(loads=None):
        if arguments.workers > 1:
            cli.refuse_several("search.py --workers")
        from pipeline.experiment import experiment_of
        from pipeline.run_files import record_command
        from training.trackers import check_trackers

        experiment, run_dir = experiment_of(arguments)
        experiment.check_searchable()
        check_trackers(experiment.run.trackers)
        if arguments.check:
            return cli.checked(arguments.experiment, experiment.warnings())
        seeds = arguments.seeds or [experiment.run.seed]
        cli.loading("torch")
        from pipeline.plan import set_up
        from pipeline.search import finish_searches, run_searches
        from training.distributed import join

        ranks = join()
        plan = set_up(experiment, run_dir, ranks)
        run_searches(plan, seeds, arguments.workers)
        ranks.wait()
        if argv is None and ranks.is_first:
            record_command(plan.run_dir, plan.experiment)
        finish_searches(plan, seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
