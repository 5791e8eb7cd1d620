"""Every network of one small model trained alone: the ground truth for what a search says.

    python -m tools.layoutbench make configs/layoutbench.yaml --workers 2
    python -m tools.layoutbench latency configs/layoutbench.yaml
    python -m tools.layoutbench again configs/layoutbench.yaml --rows 10 --seed 100
    python -m tools.layoutbench search configs/layoutbench.yaml --seeds 10,11,12 --workers 2
    python -m tools.layoutbench regret --layouts aadadd aaaddd --trainings 4
    python -m tools.layoutbench replay configs/layoutbench2.yaml --table FILE --half FILE

make: trains all layouts of the experiment's candidates and slots, those that are one network once;
started again it goes on. Writes RUN/layoutbench.csv and RUN/layoutbench.json, what the rows belong
to. latency: times the forward passes of all layouts and writes them into that table. again: trains
some rows of a table with a fresh seed; exit code 1 where one lies more than 4 standard deviations
off. search: searches and derives with several seeds and says how far the chosen layouts lie above
the best, beside random search at equal cost. regret: the same for given layouts, and the noise
ceiling. replay: what methods that train layouts reach on the table, with so much training as the
predictor takes; --half is the table of trainings of half length. Writes RUN/replay.json. propose:
searches, and what they propose within budgets, for replays (--proposals).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import cli, exit_codes

TABLE = Path("benchmarks/results/layoutbench.csv")
MOST_DEVIATIONS = 4.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    code: int = arguments.act(arguments)
    return code


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("layoutbench", __doc__)
    commands = parser.add_subparsers(
        required=True, metavar="make | latency | again | search | regret | propose | replay"
    )
    positive: dict[str, Any] = {"type": cli.number_from(1), "metavar": "N"}

    def command(name: str, act: Any, words: str, run: str | None) -> cli.Parser:
        options: dict[str, Any] = {"formatter_class": cli.HelpWithDefaults, "allow_abbrev": False}
        one: cli.Parser = commands.add_parser(name, help=words, **options)
        one.set_defaults(act=act)
        if run is not None:
            add = one.add_argument
            add("experiment", type=Path, help="a YAML file")
            add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key")
            add("--run", type=Path, default=Path(run), metavar="DIR", help="the run folder")
        return one

    make_ = command("make", make, "train all layouts", "runs/layoutbench")
    cli.add_seeds(make_, "of the trainings", (0, 1))
    make_.add_argument(
        "--within", metavar="AMOUNT",
        help="only layouts of so many FLOPs at most, e.g. 0.75x of derive.reference (default: all)",
    )  # fmt: skip
    command("latency", latency, "time all layouts", "runs/layoutbench")
    again_ = command("again", again, "train some rows anew", "runs/layoutbench-again")
    again_.add_argument("--rows", **positive, default=10, help="how many")
    again_.add_argument(
        "--seed", type=cli.number_from(0), default=100, metavar="N", help="of the trainings"
    )
    search_ = command("search", search, "what searches are worth", "runs/layoutbench-search")
    cli.add_seeds(search_, "one search each; none of the table's", (10, 11, 12, 13, 14))
    regret_ = command("regret", regret, "what chosen layouts are worth", None)
    regret_.add_argument("--layouts", nargs="+", default=[], metavar="LETTERS",
                         help="the chosen ones, such as aaaddd")  # fmt: skip
    regret_.add_argument("--trainings", **positive, help="what the search cost (default: 1 to 16)")
    propose_ = command("propose", propose, "what searches propose", "runs/layoutbench-propose")
    cli.add_seeds(propose_, "one search each; none of the table's", (10, 11, 12))
    propose_.add_argument("--within", nargs="+", required=True, metavar="AMOUNT",
                          help="budgets of FLOPs, e.g. 0.5x 0.65x")  # fmt: skip
    replay_ = command("replay", replay, "what methods that train are worth", "runs/replay")
    replay_.add_argument("--half", type=Path, required=True, metavar="FILE",
                         help="the layouts at half length")  # fmt: skip
    replay_.add_argument("--within", nargs="+", metavar="AMOUNT",
                         help="budgets of FLOPs, e.g. 0.5x (default: all layouts)")  # fmt: skip
    replay_.add_argument("--proposals", type=Path, metavar="FILE",
                         help="what searches propose (default: none)")  # fmt: skip
    for one in (search_, regret_):
        one.add_argument("--replays", **positive, default=200, help="of random search")
    replay_.add_argument("--replays", type=cli.number_from(2), metavar="N", default=300,
                         help="how many")  # fmt: skip
    for one in (make_, again_, search_, propose_):
        cli.add_workers(one)
    for one in (again_, search_, regret_, replay_):
        one.add_argument(
            "--table", type=Path, default=TABLE, metavar="FILE", help="what layouts are worth"
        )
    return parser.parse_args(argv)


def _plan(arguments: argparse.Namespace) -> Any:
    from pipeline.context import set_up
    from pipeline.experiment import load_experiment

    run = cli.check_run(arguments.run)
    return set_up(load_experiment(arguments.experiment, arguments.set), run)


def make(arguments: argparse.Namespace) -> int:
    """Train what is missing."""
    with exit_codes.user_errors():
        from pipeline.layoutbench import layouts_of, layouts_within, make_table
        from training.signals import StopRequest

        plan = _plan(arguments)
        layouts = layouts_of(plan.experiment.model)
        if arguments.within is not None:
            layouts = layouts_within(plan, layouts, arguments.within)
        seeds = len(arguments.seeds)
        print(f"{len(layouts)} layouts, {seeds} seed{'s' if seeds > 1 else ''} each", flush=True)
        stop = StopRequest()

    with exit_codes.run_errors() as ending:
        with stop.listening():
            path = make_table(plan, layouts, arguments.seeds, workers=arguments.workers, stop=stop)
        print(f"table: {path}")
    return ending.code


def latency(arguments: argparse.Namespace) -> int:
    """Time all layouts."""
    with exit_codes.user_errors():
        from pipeline.layoutbench import TABLE as NAME
        from pipeline.layoutbench import add_latencies

        latencies = add_latencies(_plan(arguments), arguments.run / NAME)
        print(f"{latencies.note}\ntable: {arguments.run / NAME}")
    return int(not latencies.median_ms)


def again(arguments: argparse.Namespace) -> int:
    """Train some rows with a fresh seed and say how far they lie off."""
    with exit_codes.user_errors():
        import numpy as np

        from pipeline.layoutbench import check_table, remake
        from pipeline.table_key import key_of
        from training.signals import StopRequest

        plan = _plan(arguments)
        table = check_table(arguments.table, key_of(plan.experiment, plan.inputs()))
        if arguments.seed in table.seeds or arguments.rows > len(table.layouts):
            raise ValueError(
                f"--seed {arguments.seed}, --rows {arguments.rows}: the table has the seeds "
                f"{table.seeds} and {len(table.layouts)} layouts; give a fresh seed, and no more"
            )
        drawn = np.random.default_rng(arguments.seed).permutation(table.layouts)
        layouts = sorted(str(layout) for layout in drawn[: arguments.rows])
        stop, trained = StopRequest(), []

    with exit_codes.run_errors() as ending, stop.listening():
        how = {"workers": arguments.workers, "stop": stop}
        trained.extend(remake(plan, table, layouts, arguments.seed, **how))
    if ending.code:
        return ending.code
    for one in trained:
        print(
            f"{one.row.layout}: test {one.row.test_nats:.4f} nats, in the table "
            f"{one.mean_nats:.4f}; {one.deviations:+.2f} standard deviations"
        )
    worst = max(abs(one.deviations) for one in trained)
    print(
        f"{len(trained)} rows, the worst {worst:.2f} standard deviations of one training "
        f"({table.pooled_deviation('test'):.4f} nats) off, {MOST_DEVIATIONS:g} allowed"
    )
    return int(worst > MOST_DEVIATIONS)


def search(arguments: argparse.Namespace) -> int:
    """Search with several seeds and weigh what they choose."""
    with exit_codes.user_errors():
        from pipeline.layoutbench import REGRET_FILE, check_table, search_all, weigh
        from pipeline.seeds import check_fresh
        from pipeline.table_key import key_of
        from training.signals import StopRequest

        plan, stop, seeds = _plan(arguments), StopRequest(), arguments.seeds
        table = check_table(arguments.table, key_of(plan.experiment, plan.inputs()))
        why = "and a search would begin as one of them did; give others"
        check_fresh(seeds, "--seeds", table.seeds, "the seeds of the table's trainings", why)

    with exit_codes.run_errors() as ending:
        with stop.listening():
            search_all(plan.experiment, plan.run_dir, seeds, workers=arguments.workers, stop=stop)
        weighed = weigh(plan, seeds, table, replays=arguments.replays)
        print(_chosen_line(weighed.layouts, weighed.regrets))
        print(
            f"a search costs {weighed.cost:.2f} trainings, the chosen layout's own one more; "
            f"random search with {weighed.trainings} trainings: regret {weighed.random_regret:.4f}"
        )
        print(f"searches less random search: {weighed.difference}")
        for name, (layout, above) in weighed.rules.items():
            print(f"rule {name}, with one training: {layout}, regret {above:.4f}")
        print(f"written: {plan.run_dir / REGRET_FILE}")
    return ending.code


def regret(arguments: argparse.Namespace) -> int:
    """Print the noise of the table, random search at several costs, and given layouts' regret."""
    with exit_codes.user_errors(loads="numpy"):
        from nas.tabular.regret import difference, random_search, regret_of
        from nas.tabular.table import read_table

        table = read_table(arguments.table)
        table.check_whole(arguments.table)
        lines = _noise_lines(table)
        counts = [arguments.trainings] if arguments.trainings else [1, 2, 4, 8, 16]
        for n in [n for n in counts if n <= len(table.layouts)] or counts:
            random = random_search(table, n, replays=arguments.replays, seed=0)
            lines.append(
                f"random search, {n} training{'s' if n > 1 else ''}: regret {random.mean:.4f} "
                f"(sd {random.regret_R.std():.4f}, {arguments.replays} searches)"
            )
        if arguments.layouts:
            lines.append(_chosen_line(arguments.layouts, regret_of(table, arguments.layouts)))
            if arguments.trainings:
                less = difference(table, arguments.layouts, random)
                lines.append(f"chosen less random search: {less}")
        print("\n".join(lines), flush=True)
    return 0


def propose(arguments: argparse.Namespace) -> int:
    """Search with several seeds and write what they propose within budgets."""
    with exit_codes.user_errors():
        from pipeline.proposals import propose as make_proposals
        from training.signals import StopRequest

        plan, stop = _plan(arguments), StopRequest()

    with exit_codes.run_errors() as ending:
        with stop.listening():
            how = {"workers": arguments.workers, "stop": stop}
            path = make_proposals(plan, arguments.seeds, arguments.within, **how)
        print(f"proposals: {path}")
    return ending.code


def replay(arguments: argparse.Namespace) -> int:
    """Replay all methods on a table and say what they reached."""
    with exit_codes.user_errors():
        from pipeline.proposals import read_proposals
        from pipeline.replays import contest_text, read_tables, replay_all

        plan = _plan(arguments)
        tables = read_tables(plan, arguments.table, arguments.half)
        proposals = read_proposals(arguments.proposals) if arguments.proposals else {}
        options = {"replays": arguments.replays, "proposals": proposals}
        contests = replay_all(plan, tables, arguments.within or [None], **options)
        print("\n\n".join(contest_text(*each) for each in contests.items()))
        print(f"written: {plan.run_dir / 'replay.json'}")
    return 0


def _noise_lines(table: Any) -> list[str]:
    from nas.tabular.regret import noise_of

    noise = noise_of(table)
    return [
        f"{len(table.layouts)} layouts, {len(table.seeds)} seeds each; test nats per token: "
        f"standard deviation over layouts {noise.spread:.4f}, over seeds {noise.deviation:.4f}",
        f"Kendall's tau between two seeds {noise.agreement:.3f}; a perfect score would reach about "
        f"{noise.ceiling:.3f} with the seeds' mean",
        f"regret of the best by one training of every layout {noise.regret:.4f}",
        "regrets begin at the table's best layout, whose own luck is in all; differences lack it",
    ]


def _chosen_line(layouts: Sequence[str], chosen: Any) -> str:
    pairs = zip(layouts, chosen.each, strict=True)
    values = ", ".join(f"{layout} {value:.4f}" for layout, value in pairs)
    return f"chosen: regret {chosen.mean:.4f}, n = {len(chosen.each)}: {values}"


if __name__ == "__main__":
    sys.exit(main())
