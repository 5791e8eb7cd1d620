"""The noise floor of a search: what pi does when there is nothing to choose.

Searches with the experiment's own candidates and with three identical dense ones per slot, for
several seeds each, and prints entropy and margins of the final pi side by side, the guard's t (how
directed alpha's path was), and how often two searches chose alike. A --variant is a name, which is
also a folder of the run, and the settings of its searches. Started again, it goes on where it was.

    python -m benchmarks.placebo benchmarks/six_blocks.yaml --run runs/placebo --seeds 0,1,2
    python -m benchmarks.placebo benchmarks/six_blocks.yaml --variant 240 search.steps=240
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import cli

PLACEBO = f"[{', '.join(f'{{kind: dense, label: dense_{name}}}' for name in 'abc')}]"
SIDES: Mapping[str, Sequence[str]] = {
    "real": [],
    "placebo": [f"model.candidates={PLACEBO}"],
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.Parser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--run", type=Path, default=Path("runs/placebo"))
    cli.add_seeds(parser, "of the searches", (0, 1, 2))
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--variant", nargs="+", action="append", metavar=("NAME", "KEY=VALUE"))
    parser.add_argument("--json", type=Path, help="write all figures")
    arguments = parser.parse_args(argv)
    import search
    from benchmarks.harness import write_result
    from pipeline.run_files import search_folder

    rows = []
    for variant, *varied in arguments.variant or [["."]]:
        for side, settings in SIDES.items():
            run = arguments.run / variant / side
            for seed in arguments.seeds:
                command = [str(arguments.experiment), "--run", str(run)]
                for setting in [*arguments.set, *varied, *settings, f"run.seed={seed}"]:
                    command += ["--set", setting]
                if code := search.main(command):
                    return code
                place = {"variant": variant, "settings": varied, "side": side, "seed": seed}
                rows.append({**place, **figures_of(search_folder(run, seed))})
    summary = [
        summary_of([row for row in rows if (row["variant"], row["side"]) == (variant, side)])
        for variant, *_ in arguments.variant or [["."]]
        for side in SIDES
    ]
    print_tables(rows, summary)
    if arguments.json is not None:
        parts = {"command": _command(argv), "searches": rows, "summary": summary}
        write_result(arguments.json, "placebo", parts)
    return 0


def figures_of(folder: Path) -> dict[str, Any]:
    """What a finished search came to, by its last pi."""
    from nas.search.diagnostics import alpha_path, directedness
    from nas.search.plan import SearchPlan
    from pipeline.experiment import load_experiment
    from utils.pi import entropy_share, load_pi, margins

    arrays = load_pi(folder / "pi.npz")
    pi_LC, alpha_NLC = arrays["pi"][-1], arrays["alpha"].astype(float)
    config, steps = load_experiment(folder / "experiment.yaml", []).search, len(alpha_NLC)
    plan = SearchPlan(config, steps, memory=0, segment=1)
    path_NLC, rate_M = alpha_path(alpha_NLC, plan)
    t_L = directedness(path_NLC, rate_M)
    peak = re.findall(r"peak learning rate of alpha ([\d.]+)", (folder / "train.log").read_text())
    return {
        "commit": json.loads((folder / "environment.json").read_text())["commit"],
        "steps": steps,
        "alpha_steps": len(plan.alpha_steps),
        "peak_lr": float(peak[0]),
        "entropy_share": entropy_share(pi_LC),
        "margins": margins(pi_LC).tolist(),
        "t": [None if t != t else float(t) for t in t_L],
        "choice": [str(label) for label in arrays["labels"][pi_LC.argmax(-1)]],
    }


def summary_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over the searches of one variant and side; which part of their pairs chose alike."""
    margins = [margin for row in rows for margin in row["margins"]]
    pairs = [
        left == right
        for index, row in enumerate(rows)
        for other in rows[index + 1 :]
        for left, right in zip(row["choice"], other["choice"], strict=True)
    ]
    return {
        **{key: rows[0][key] for key in ("variant", "side", "steps", "alpha_steps", "peak_lr")},
        "mean_margin": sum(margins) / len(margins),
        "largest_margin": max(margins),
        "pairs_alike": sum(pairs) / len(pairs) if pairs else None,
    }


def print_tables(rows: Sequence[Mapping[str, Any]], summary: Sequence[Mapping[str, Any]]) -> None:
    """A row for each search, then one for each variant and side."""
    import numpy as np

    print("\n| variant | search | seed | entropy | mean margin | least | largest | t | choice |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        margins = row["margins"]
        judged = [t for t in row["t"] if t is not None]
        t = f"{np.median(judged):.1f}" if judged else "-"
        print(
            f"| {row['variant']} | {row['side']} | {row['seed']} | {row['entropy_share']:.3f} "
            f"| {np.mean(margins):.3f} | {min(margins):.3f} | {max(margins):.3f} | {t} "
            f"| {' '.join(row['choice'])} |"
        )
    print(
        "\n| variant | steps of alpha | peak rate | search | mean margin | largest | pairs alike |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in summary:
        alike = "-" if row["pairs_alike"] is None else f"{row['pairs_alike']:.2f}"
        print(
            f"| {row['variant']} | {row['alpha_steps']} | {row['peak_lr']} | {row['side']} "
            f"| {row['mean_margin']:.3f} | {row['largest_margin']:.3f} | {alike} |"
        )


def _command(argv: Sequence[str] | None) -> str:
    return " ".join(["python -m benchmarks.placebo", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
