"""Does a SuperNet rank layouts as training alone does, and better than counting parameters?

Draws layouts that cost within 3% of what the search's layout costs, and free ones. Each is scored
by the SuperNet's weights on validation and trained alone, as retrain.py does it but for half the
steps, and tested. Kendall's tau between the two stands beside the tau of parameters, FLOPs, latency
and the number of attention slots, beside the agreement of two trainings, and beside what a perfect
predictor would reach. Started again, the same command goes on; more layouts, or other training
seeds, are added to what is there.

    python -m tools.rank runs/quickstart --workers 2
    python -m tools.rank runs/quickstart --equal 40 --free 0 --steps 400 --seeds 100,101,102

Writes RUN/rank/rank.csv, rank.json and rank.png; the trainings are in RUN/rank/layouts. Several
searches: --set 'derive.searches=[0,1,2]' takes the mean over their SuperNets.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli, exit_codes

if TYPE_CHECKING:
    from nas.statistics.kendall import Ranking
    from pipeline.rank import Ranked

SEEDS = (100, 101)
TITLES = {"equal": "within 3% of equal FLOPs", "free": "free"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with exit_codes.user_errors():
        from pipeline.context import set_up
        from pipeline.experiment import experiment_of
        from pipeline.rank import Ranked, sample_of
        from training.signals import StopRequest

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        plan = set_up(experiment, run_dir)
        searches = experiment.derive.searches or [experiment.run.seed]
        sample = sample_of(
            plan, searches, arguments.equal, arguments.free, arguments.sample_seed,
            arguments.target_flops,
        )  # fmt: skip
        seeds, folder = arguments.seeds or list(SEEDS), arguments.out or run_dir / "rank"
        ranked = Ranked(plan, sample, searches, seeds, arguments.steps, folder)
        ranked.open()
        stop = StopRequest()
    print(_greeting(ranked, arguments), flush=True)

    with exit_codes.run_errors() as ending:
        with stop.listening():
            ranked.train(workers=arguments.workers, stop=stop)
        show(ranked)
    return ending.code


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.parser(__doc__)
    parser.prog = "python -m tools.rank"
    add = parser.add_argument
    from_0: Any = {"type": cli.number_from(0), "metavar": "N"}
    add("--equal", **from_0, default=20, help="layouts of one cost")
    add("--free", **from_0, default=20, help="free layouts")
    add("--sample-seed", **from_0, default=0, help="of the layouts")
    add("--steps", type=cli.number_from(1), metavar="N",
        help="of a training (default: half the experiment's own)")  # fmt: skip
    add("--target-flops", type=float, metavar="X",
        help="what layouts of one cost cost per token (default: what the search's argmax costs; "
        "the median of free layouts where the search learned no alpha)")  # fmt: skip
    cli.add_seeds(parser, "training seeds (default: 100,101, which took no part in the search)")
    cli.add_workers(parser)
    add("--out", type=Path, metavar="DIR", help="default: RUN/rank")
    arguments = parser.parse_args(argv)
    counts, flops = (arguments.equal, arguments.free), arguments.target_flops
    if sum(counts) < 2:
        parser.error("--equal {} --free {}: expected 2 layouts or more in all".format(*counts))
    if flops is not None and not 0 < flops < math.inf:
        parser.error(f"--target-flops: expected more than 0, found {flops}")
    return arguments


def _greeting(ranked: "Ranked", arguments: argparse.Namespace) -> str:
    sample = ranked.sample
    counts = {name: len(group) for name, group in sample.groups.items()}
    parts = [f"{counts['free']} free"]
    if sample.target_flops is not None:
        mflop = f"{sample.target_flops / 1e6:.3f} MFLOP per token ({sample.target})"
        parts.insert(0, f"{counts['equal']} within 3% of {mflop}")
    lines = [
        f"{len(sample.layouts)} layouts x {len(ranked.seeds)} training seeds x "
        f"{ranked.training_steps} steps: {', '.join(parts)}"
    ]
    lines += [
        f"only {counts[name]} of {wanted} layouts: no further network was found ({TITLES[name]})"
        for name, wanted in (("equal", arguments.equal), ("free", arguments.free))
        if counts[name] < wanted
    ]
    return "\n".join(lines)


def show(ranked: "Ranked") -> None:
    """Measure latencies; write and print the table and what may be said."""
    from pipeline.rank import rankings
    from report.rank import write_rank_figure
    from utils.files import csv_of, write_whole

    measured = ranked.latencies()
    rows = ranked.table(measured)
    by_group = rankings(rows, ranked.seeds)
    content = {
        "searches": list(ranked.searches),
        "seeds": list(ranked.seeds),
        "steps": ranked.training_steps,
        "target_flops": ranked.sample.target_flops,
        "tokens": next(iter(ranked.scores.values())).tokens,
        "latency_note": measured.note,
        "latency_key": measured.key,
        "groups": {
            name: {
                **asdict(ranking),
                "visible": ranking.visible,
                "verdict": ranking.verdict,
                "title": TITLES[name],
            }
            for name, ranking in by_group.items()
        },
        "rows": rows,
    }
    write_whole(ranked.folder / "rank.csv", csv_of(rows, list(rows[0])))
    write_whole(ranked.folder / "rank.json", json.dumps(content, indent=1) + "\n")
    figure = write_rank_figure(ranked.folder)
    for name, title in TITLES.items():
        if name in by_group:
            print(f"\n{as_text(title, by_group[name])}")
        elif count := len(ranked.sample.groups[name]):
            print(f"\n{title}: no tau of {count} layout")
    print(f"\n{measured.note}\ntable: {ranked.folder / 'rank.csv'}\nfigure: {figure}")


def as_text(title: str, ranking: "Ranking") -> str:
    """Taus with their 95% intervals, and the verdict."""
    taus = {"SuperNet": str(ranking.supernet)}
    for name, tau in ranking.trivial.items():
        taus[name if tau.tau is None else f"{ranking.direction[name]} {name}"] = str(tau)
    agreement, ceiling, lacking = ranking.agreement, ranking.ceiling, "needs two training seeds"
    taus["agreement of two trainings"] = lacking if agreement is None else str(agreement)
    taus["a perfect predictor"] = lacking if ceiling is None else f"{ceiling:+.3f}"
    width = max(map(len, taus))
    lines = [
        f"Kendall's tau with training alone, {ranking.n} layouts, {title} (95% interval)",
        *(f"  {name:<{width}}  {words}" for name, words in taus.items()),
        ranking.verdict,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
