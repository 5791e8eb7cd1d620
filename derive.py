"""Turn the search into a fixed layout: an architecture JSON that trains without the SuperNet.

    python derive.py runs/quickstart
    python derive.py runs/quickstart --method top_k
    python derive.py runs/quickstart --seeds 0,1,2
    python derive.py configs/quickstart.yaml --method layout --set 'derive.layout=a d a d d d'
    python derive.py runs/quickstart --set derive.budget.latency=0.65x
    python derive.py runs/quickstart --pareto

top_k, sampled, beam and evolution score layouts by the SuperNet's weights on the validation text.
From a search, the discretisation gap is measured too (derive.gap). Several --seeds: from the mean
alpha of these searches, with their agreement.

--pareto scores networks of every cost and writes those that no other one beats in cost and score:
RUN/pareto.csv, pareto.json, pareto.png, and an architecture for each. compare.py --pareto trains
them.

Writes RUN/architectures/NAME.json, for scored layouts NAME.csv, and RUN/architecture.json, the
chosen one. Next: python retrain.py RUN
"""

import sys
from collections.abc import Sequence

from pipeline import cli, exit_codes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__)
    parser.add_argument(
        "--method",
        help="argmax, top_k, sampled, beam, evolution; interleaved, par, sandwich, random, layout "
        "(default: derive.method, argmax where the file has none)",
    )
    cli.add_seeds(parser, "searches to derive from together, e.g. 0,1,2 (default: run.seed)")
    parser.add_argument(
        "--pareto", nargs="?", const="latency", metavar="COST",
        help="the front of a cost and the score (default: none; of latency where no COST is named; "
        "also decode, train_step, throughput, parameters, flops, cache)",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    if arguments.method is not None:
        arguments.set.append(f"derive.method={arguments.method}")
    if arguments.seeds is not None:
        arguments.set.append(f"derive.searches={arguments.seeds}")
    with exit_codes.user_errors():
        exit_codes.refuse_several("derive.py")
        from pipeline.context import set_up
        from pipeline.derive import choose, chosen_before, derivation, others_left_out
        from pipeline.experiment import carried, experiment_of
        from pipeline.pareto import derive_front
        from pipeline.supernet_scores import considered_text, describe
        from report.pareto import write_pareto_figure

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        plan = set_up(experiment, run_dir)
        if arguments.pareto is not None:
            print(derive_front(plan, arguments.pareto))
            print(f"figure: {write_pareto_figure(run_dir)}")
            return 0
        derived = derivation(plan, experiment.derive)
        before = chosen_before(run_dir)
        architecture = choose(derived, experiment, run_dir)
    if derived.considered:
        print(considered_text(derived.considered))
    print(describe(architecture))
    if line := others_left_out(run_dir, experiment.derive, plan.seed):
        print(line)
    print(f"architecture: {run_dir / 'architecture.json'}")
    if before is not None and before.name != architecture.name:
        print(f"in place of {before.name} ({before.letters()}), which stays in architectures/")
    print(f"next: {cli.command('retrain.py', run_dir, *carried(arguments))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
