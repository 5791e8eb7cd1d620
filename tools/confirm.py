"""Is one experiment better than another? Both searched, derived and retrained with fresh seeds.

The best of many trials looks better than it is, because it was chosen for it. So give seeds that
took no part in the choice. The test split is read here for the first time; pairs share a seed.
Started again, the same command goes on.

    python -m tools.confirm runs/sweep_tau/best_no_slower.yaml configs/sweep_tau.yaml --workers 2
    python -m tools.confirm a.yaml b.yaml --seeds 100,101,102 --run runs/a_or_b

Writes RUN/NAME/seed-N/ for each, RUN/confirm.csv and RUN/confirm.json.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import cli, exit_codes

SEEDS = (100, 101, 102, 103, 104)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    files = arguments.experiments
    with exit_codes.user_errors():
        from pipeline.confirm import Side, check_seeds, check_sides, check_text, train_sides
        from pipeline.experiment import load_experiment
        from pipeline.plan import set_up
        from training.signals import StopRequest

        sides = [
            Side(name, load_experiment(file, arguments.set))
            for name, file in zip(names_of(files), files, strict=True)
        ]
        check_sides(*sides)
        check_seeds(sides, arguments.seeds)
        plan = set_up(sides[1].experiment, cli.check_run(arguments.run))
        check_text(plan.prepared.tokenizer)
        stop = StopRequest()

        with stop.listening():
            train_sides(sides, arguments.seeds, arguments.run, workers=arguments.workers, stop=stop)
        show(plan, sides, arguments)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("confirm", __doc__)
    add = parser.add_argument
    add("experiments", nargs=2, type=Path, metavar="experiment", help="YAML files")
    cli.add_seeds(parser, "seeds that took no part in the choice", SEEDS)
    cli.add_workers(parser)
    add("--run", type=Path, default=Path("runs/confirm"), metavar="DIR", help="the run folder")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of both")
    return parser.parse_args(argv)


def names_of(files: Sequence[Path]) -> list[str]:
    """What the two are called: the names of their files, with a number where they are alike."""
    one, two = (file.stem for file in files)
    return [one, two] if one != two else [f"{one}-1", f"{two}-2"]


def show(plan: Any, sides: Any, arguments: argparse.Namespace) -> None:
    """Measure latencies; write and print the table and what may be said."""
    from pipeline.confirm import (
        latencies,
        same_networks,
        table_of,
        unlike_trainings,
        verdict_line,
    )
    from utils.files import csv_of, write_whole

    rows = table_of(sides, arguments.seeds, arguments.run)
    measured = latencies(plan, sides, arguments.seeds, arguments.run)
    for row in rows:
        row["latency_ms"] = measured.median_ms.get(f"{row['experiment']}/{row['seed']}")
    one, two = sides
    verdict = verdict_line(rows, one.name, two.name)
    seen = (
        same_networks(one, two, arguments.seeds, arguments.run),
        unlike_trainings(sides, arguments.seeds, arguments.run),
    )
    remarks = [remark for remark in seen if remark]
    summary = {
        "verdict": verdict,
        "remarks": remarks,
        "latency_note": measured.note,
        "latency_key": measured.key,
        "rows": rows,
    }
    write_whole(arguments.run / "confirm.csv", csv_of(rows, list(rows[0])))
    write_whole(arguments.run / "confirm.json", json.dumps(summary, indent=1) + "\n")
    lines = ["", as_text(rows), measured.note, verdict, *remarks]
    print("\n".join([*lines, f"table: {arguments.run / 'confirm.csv'}"]))


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table for a terminal, with means."""
    titles = f"{'layout':<16} {'MFLOP':>7} {'ms':>7} {'test bits/byte':>15}"
    lines = [f"{'experiment':<20} {'seed':>6}  {titles}"]
    for name in dict.fromkeys(row["experiment"] for row in rows):
        side = [row for row in rows if row["experiment"] == name]
        lines += [_line(name, row["seed"], row["layout"], [row]) for row in side]
        lines.append(_line(name, "mean", "", side))
    return "\n".join(lines)


def _line(name: str, seed: object, layout: str, rows: Sequence[Mapping[str, Any]]) -> str:
    mflop = statistics.fmean(row["flops_per_token"] for row in rows) / 1e6
    times = [row["latency_ms"] for row in rows]
    latency = "-" if None in times else f"{statistics.fmean(times):.2f}"
    bits = statistics.fmean(row["test_bits_per_byte"] for row in rows)
    return f"{name:<20} {seed:>6}  {layout:<16} {mflop:>7.3f} {latency:>7} {bits:>15.4f}"


if __name__ == "__main__":
    sys.exit(main())
