"""Step 2 of 4: choose a layout and write it as an architecture that needs no SuperNet.

    python derive.py runs/quickstart
    python derive.py runs/quickstart --method top_k
    python derive.py runs/quickstart --seeds 0,1,2
    python derive.py configs/quickstart.yaml --method layout --set 'derive.layout=a d a d d d'
    python derive.py runs/quickstart --set derive.budget.latency=0.65x
    python derive.py configs/quickstart.yaml --method trained --workers 2
    python derive.py configs/quickstart.yaml --method predictor --workers 2
    python derive.py configs/shrink.yaml --workers 2

trained, the default, trains the hand-written layouts in full, and the best ones again with another
seed. predictor trains a few layouts for half of the steps, learns from them which to train next,
and judges the best ones by full trainings, beside the best hand-written layout. Neither needs a
search; if there is one, its best layouts are trained too. Both resume when they are started again.

top_k, sampled, beam and evolution score layouts with the SuperNet's weights on the validation text.
After a search, the discretisation gap is measured too (derive.gap). Several --seeds derive from the
mean alpha of these searches and report how well they agree.

shrink drops blocks of the trained model retrain.start until the budget is kept, and scores what is
left by its distance from the whole. retrain.py then begins with the model's weights.

Writes RUN/architectures/NAME.json, tables there of what was scored or trained, the chosen
RUN/architecture.json, and RUN/report.html. Next: python retrain.py RUN
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline import cli

if TYPE_CHECKING:
    from model import Architecture
    from pipeline.derive import Derivation
    from pipeline.plan import RunPlan


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__)
    parser.add_argument(
        "--method",
        help="argmax, top_k, sampled, beam, evolution; trained, predictor; interleaved, par, "
        "sandwich, random, layout; shrink (default: derive.method, trained unless the file says "
        "otherwise)",
    )
    cli.add_workers(parser, "trainings that run in parallel (trained, predictor, shrink)")
    cli.add_seeds(parser, "searches to derive from together, e.g. 0,1,2 (default: run.seed)")
    arguments = parser.parse_args(argv)
    if arguments.method is not None:
        arguments.set.append(f"derive.method={arguments.method}")
    if arguments.seeds is not None:
        arguments.set.append(f"derive.searches={arguments.seeds}")
    with cli.user_errors(loads=None):
        cli.refuse_several("derive.py")
        from pipeline.experiment import experiment_of
        from pipeline.run_files import record_command

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment, experiment.warnings())
        if problems := experiment.layout_problems():
            raise ValueError("\n".join(problems))
        cli.loading("torch")
        from pipeline.derive import choose, derivation
        from pipeline.plan import set_up

        plan = set_up(experiment, run_dir)
        derived = derivation(plan, experiment.derive, workers=arguments.workers)
        architecture = choose(derived, experiment, run_dir)
        if argv is None:  # only now: by a rule that was the first to write into the run
            record_command(plan.run_dir, plan.experiment)
        show(plan, derived, architecture, arguments)
    return 0


def show(
    plan: "RunPlan",
    derivation: "Derivation",
    architecture: "Architecture",
    arguments: argparse.Namespace,
) -> None:
    """Print an architecture and what speaks for it."""
    from pipeline.derive import describe, weighed_text
    from pipeline.experiment import carried
    from pipeline.summary import show_report

    run_dir, derived = plan.run_dir, derivation.derived
    if text := weighed_text(derived):
        print(text)
    if derived.trained:
        from report.derivation import write_trainings_figure

        print(f"figure: {write_trainings_figure(run_dir)}")
    if derived.trained or derived.subsets:
        print(derived.evidence.method)
    print(describe(architecture))
    print(f"architecture: {run_dir / 'architecture.json'}")
    show_report(plan)
    print(f"next: {cli.command('retrain.py', run_dir, *carried(arguments))}")


if __name__ == "__main__":
    sys.exit(main())
