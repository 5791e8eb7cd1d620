"""Step 3 of 4: train the chosen layout from scratch and test it once.

This needs an experiment and an architecture, but no SuperNet. The model is tested once, at the step
with the best validation loss. An interrupted training resumes from its last checkpoint when the
same command is given again.

    python retrain.py runs/quickstart
    python retrain.py runs/quickstart --seeds 0,1,2 --workers 2
    python retrain.py configs/quickstart.yaml --layout "a d a d d d"
    python retrain.py configs/quickstart.yaml --layout interleaved --set run.seed=1
    python retrain.py configs/quickstart.yaml --architecture architecture.json
    torchrun --nproc_per_node 2 -- retrain.py runs/quickstart

Writes RUN/retrain/NAME/seed-N/ (result.json, metrics.jsonl, train.log, model/) and, for the
chosen architecture, RUN/model/ and RUN/report.html. Next: python compare.py RUN
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli

if TYPE_CHECKING:
    from pipeline.plan import RunPlan


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__)
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--architecture",
        type=Path,
        metavar="FILE",
        help="an architecture JSON (default: RUN/architecture.json)",
    )
    source.add_argument(
        "--layout", metavar="LAYOUT", help="letters, e.g. 'a d a d', or a method of derive.py"
    )
    cli.add_seeds(parser, "several trainings, e.g. 0,1,2 (default: run.seed alone)")
    cli.add_workers(parser, "trainings that run in parallel, each with its share of the cores")
    arguments = parser.parse_args(argv)
    with cli.user_errors(loads=None):
        if arguments.workers > 1:
            cli.refuse_several("retrain.py --workers")
        from pipeline.experiment import experiment_of
        from pipeline.run_files import record_command
        from training.trackers import check_trackers

        experiment, run_dir = experiment_of(arguments)
        experiment.check_layout(arguments.layout)
        check_trackers(experiment.run.trackers)
        if arguments.check:
            return cli.checked(arguments.experiment, experiment.warnings())
        seeds = arguments.seeds or [experiment.run.seed]
        cli.loading("torch")
        from pipeline.plan import set_up
        from pipeline.retrain import find_architecture, retrain_all
        from training.distributed import join

        ranks = join()
        plan = set_up(experiment, run_dir, ranks)
        architecture = find_architecture(plan, arguments.architecture, arguments.layout)
        trainings = [(plan.with_seed(seed), architecture) for seed in seeds]
        results = retrain_all(trainings, arguments.workers)
        if ranks.is_first:
            if argv is None:
                record_command(plan.run_dir, plan.experiment)
            show(plan, results, arguments)
    return 0


def show(plan: "RunPlan", results: Sequence[Path], arguments: argparse.Namespace) -> None:
    """Print what the trainings came to, where the model lies and what may follow."""
    from nas.derivation import named_layout
    from pipeline.experiment import carried
    from pipeline.retrain import copy_chosen, show_mean, show_result
    from pipeline.summary import show_report

    for result in results:
        show_result(result)
    if len(results) > 1:
        show_mean(results)
    if arguments.architecture is None and arguments.layout is None:
        print(copy_chosen(results[0], plan.run_dir))
        show_report(plan)
        print(f"next: {cli.command('compare.py', plan.run_dir, *carried(arguments))}")
    else:
        print(f"model: {results[0].parent / 'model'}")
    if arguments.layout is not None:
        named = [f"derive.{key}={it}" for key, it in named_layout(arguments.layout).items()]
        derive = cli.command("derive.py", plan.run_dir, *named, *carried(arguments))
        print(f"to choose this layout: {derive}")


if __name__ == "__main__":
    sys.exit(main())
