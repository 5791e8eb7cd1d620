"""Sweep settings with Optuna: tau schedules, block counts, any key of the experiment.

The file is an experiment with a section `sweep`. Every trial searches (unless derive.method needs
none), derives and retrains in a worker process. An error fails only its own trial; when a worker
dies, its trial is run again. The same command resumes an interrupted sweep, and other machines can
join it with --worker.

    python sweep.py configs/sweep_quick.yaml --workers 2
    python sweep.py configs/sweep_tau.yaml --set sweep.trials=60
    python sweep.py runs/sweep_tau --worker

Writes RUN/trials.csv, RUN/sweep.html, RUN/trials/NNNN/seed-N/ for each trial, and RUN/best.yaml, or
with several objectives RUN/pareto/NNNN.yaml. Next: a run with one of these
"""

import argparse
import sys
from collections.abc import Sequence

from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.worker and arguments.retry_failed:
        parser.error("--retry-failed: give it where the sweep was started, not with --worker")
    with cli.user_errors(loads=None):
        cli.refuse_several("sweep.py")
        from pipeline.experiment import experiment_of

        experiment, run_dir = experiment_of(arguments)
        if experiment.sweep is None:
            raise ValueError(
                f"{arguments.experiment}: sweep: missing; say what to sweep, as "
                "configs/sweep_quick.yaml does"
            )
        if arguments.check:
            return cli.checked(arguments.experiment, experiment.warnings())
        if problems := experiment.layout_problems():
            raise ValueError("\n".join(problems))
        cli.loading("torch")
        from pipeline.sweep.run import join_sweep, start_sweep

        if arguments.worker:
            join_sweep(experiment, run_dir, arguments.workers)
        else:
            start_sweep(experiment, run_dir, arguments.workers, again=arguments.retry_failed)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = cli.parser(__doc__, saved=cli.SAVED_OF_SWEEP)
    cli.add_workers(parser, "trials that run in parallel here and share the threads or GPUs")
    parser.add_argument(
        "--worker",
        action="store_true",
        help="only join a sweep that was started elsewhere",
    )
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="run failed trials again, from their last checkpoints",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
