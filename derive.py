"""Turn the search into a fixed layout: an architecture JSON that trains without the SuperNet.

    python derive.py runs/quickstart
    python derive.py runs/quickstart --method par
    python derive.py configs/quickstart.yaml --method layout --set 'derive.layout=a d a d d d'

Writes RUN/architectures/NAME.json and RUN/architecture.json, the chosen one.
Next: python retrain.py RUN
"""

import sys
from collections.abc import Sequence

import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__)
    parser.add_argument("--method", help="argmax, interleaved, par, sandwich, random or layout")
    arguments = parser.parse_args(argv)
    with cli.user_errors():
        from assembly.architectures import choose, derive, describe
        from assembly.workbench import experiment_of, set_up

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        bench = set_up(experiment, run_dir)
        method = arguments.method or experiment.derive.method
        architecture = derive(bench, experiment.derive.model_copy(update={"method": method}))
        path = choose(bench, architecture)
    print(describe(architecture))
    print(f"architecture: {path}\nnext: python retrain.py {run_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
