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
import command_line
import endings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__)
    parser.add_argument("--method", help="argmax, interleaved, par, sandwich, random or layout")
    arguments = parser.parse_args(argv)
    if arguments.method is not None:
        arguments.set.append(f"derive.method={arguments.method}")
    with endings.user_errors():
        endings.refuse_several("derive.py")
        from assembly.architectures import choose, derive, describe
        from assembly.arguments import carried, experiment_of
        from assembly.workbench import set_up

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        bench = set_up(experiment, run_dir, carried(arguments))
        architecture = choose(bench, derive(bench, experiment.derive))
    print(describe(architecture))
    print(f"architecture: {run_dir / 'architecture.json'}")
    print(f"next: {command_line.command('retrain.py', run_dir, *bench.settings)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
