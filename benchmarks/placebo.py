"""The noise floor of a search: what pi does when there is nothing to choose.

Searches with the experiment's own candidates and with three identical dense ones per slot, for
several seeds each, and prints entropy and margins of the final pi side by side. Started again, it
goes on where it was.

    python -m benchmarks.placebo configs/quickstart.yaml --run runs/placebo --seeds 0,1,2
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import cli

PLACEBO = f"[{', '.join(f'{{kind: dense, label: dense_{name}}}' for name in 'abc')}]"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.Parser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    cli.add_seeds(parser, "of the searches", (0, 1, 2))
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args(argv)
    import search

    sides = {"real": [], "placebo": [f"model.candidates={PLACEBO}"]}
    for side, settings in sides.items():
        for seed in arguments.seeds:
            command = [str(arguments.experiment), "--run", str(arguments.run / side)]
            for setting in [*arguments.set, *settings, f"run.seed={seed}"]:
                command += ["--set", setting]
            if code := search.main(command):
                return code
    print_table(arguments.run, list(sides), arguments.seeds)
    return 0


def print_table(run: Path, sides: Sequence[str], seeds: Sequence[int]) -> None:
    """Entropy and margins of the final pi, one row per search."""
    from nas.trajectory import entropy_share, load_pi, margins

    means: dict[str, list[float]] = {side: [] for side in sides}
    print("\n| search | seed | mean entropy / uniform | mean margin | least | largest | choice |")
    print("|---|---|---|---|---|---|---|")
    for side in sides:
        for seed in seeds:
            arrays = load_pi(run / side / "search" / f"seed-{seed}" / "pi.npz")
            pi_LC = arrays["pi"][-1]
            margin_L = margins(pi_LC)
            means[side].append(float(margin_L.mean()))
            choice = " ".join(str(label) for label in arrays["labels"][pi_LC.argmax(-1)])
            print(
                f"| {side} | {seed} | {entropy_share(pi_LC):.3f} | {margin_L.mean():.3f} "
                f"| {margin_L.min():.3f} | {margin_L.max():.3f} | {choice} |"
            )
    real, placebo = (sum(means[side]) / len(seeds) for side in sides)
    print(f"\nmean margin: real {real:.3f}, placebo {placebo:.3f}, ratio {placebo / real:.3f}")


if __name__ == "__main__":
    sys.exit(main())
