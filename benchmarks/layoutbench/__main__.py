"""Layouts trained alone: the ground truth for what searches and methods say of them.

    python -m benchmarks.layoutbench make configs/layoutbench.yaml --workers 2
    python -m benchmarks.layoutbench again configs/layoutbench.yaml --rows 10 --seed 100
    python -m benchmarks.layoutbench search configs/layoutbench.yaml --seeds 10,11,12 --workers 2
    python -m benchmarks.layoutbench regret --layouts aadadd aaaddd --trainings 4
    python -m benchmarks.layoutbench propose configs/layoutbench2.yaml --within 0.5x 0.65x
    python -m benchmarks.layoutbench replay configs/layoutbench2.yaml --table FILE --half FILE
    python -m benchmarks.layoutbench rank runs/quickstart --workers 2

make: trains every network of one small model; started again it goes on. Writes RUN/layoutbench.csv
and RUN/layoutbench.json, what the rows belong to.
again: trains some rows of a table with a fresh seed; exit code 1 where one lies more than 4
standard deviations off.
search: searches and derives with several seeds and says how far the chosen layouts lie above the
best, beside random search at equal cost.
regret: the same for given layouts, and the noise ceiling.
propose: searches, and what they propose within budgets, for replays (--proposals).
replay: what methods that train layouts reach on the table, with so much training as the predictor
takes; --half is the table of trainings of half length. Writes RUN/replay.json.
rank: does a SuperNet rank layouts as training alone does, and better than counting parameters?
Draws layouts that cost within 3% of what the search's layout costs, and free ones. Kendall's tau
stands beside that of trivial predictors and of two trainings, and beside what a perfect predictor
would reach. Writes RUN/rank/rank.csv, rank.json and rank.png.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.keys import check_key, claim_key, key_of
from benchmarks.layoutbench.making import checked_table, layouts_of, layouts_within, make_table
from benchmarks.layoutbench.rank import Ranked, sample_of
from benchmarks.layoutbench.rank_report import greeting, show
from benchmarks.layoutbench.regret import (
    Difference,
    Regrets,
    difference,
    noise_of,
    random_search,
    regret_of,
)
from benchmarks.layoutbench.replay import contest_text, read_tables, replay_all
from benchmarks.layoutbench.searches import (
    PROPOSALS,
    REGRET_FILE,
    Proposal,
    propose_within,
    read_proposals,
    search_all,
    weigh,
)
from benchmarks.layoutbench.table import LayoutTable, read_table
from nas.derivation import RULES
from pipeline import cli
from pipeline.experiment import experiment_of, load_experiment
from pipeline.layout_scores import check_fresh
from pipeline.plan import RunPlan, set_up
from training.signals import StopRequest

TABLE = Path("benchmarks/results/layoutbench.csv")
MOST_DEVIATIONS = 4.0
NUMBER: dict[str, Any] = {"type": cli.number_from(1), "metavar": "N"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with cli.user_errors():
        code: int = arguments.act(arguments)
    return code


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.Parser(
        prog="python -m benchmarks.layoutbench",
        description=__doc__,
        formatter_class=cli.HelpWithDefaults,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, act: Any, words: str, run: str | None = None) -> cli.Parser:
        one: cli.Parser = commands.add_parser(
            name, help=words, formatter_class=cli.HelpWithDefaults, allow_abbrev=False
        )
        one.set_defaults(act=act, saved=cli.SAVED, check=False)
        if name != "regret":
            add = one.add_argument
            add("experiment", type=Path, help="a YAML file, or a run directory")
            add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key")
            default = None if run is None else Path(run)
            words = "the run folder" if run else "the run folder (default: the one given)"
            add("--run", type=Path, default=default, metavar="DIR", help=words)
        return one

    make_ = command("make", make, "train all layouts", "runs/layoutbench")
    cli.add_seeds(make_, "of the trainings", (0, 1))
    make_.add_argument(
        "--within", metavar="AMOUNT",
        help="only layouts of so many FLOPs at most, e.g. 0.75x of derive.reference (default: all)",
    )  # fmt: skip
    again_ = command("again", again, "train some rows anew", "runs/layoutbench-again")
    again_.add_argument("--rows", **NUMBER, default=10, help="how many")
    again_.add_argument("--seed", type=int, default=100, metavar="N", help="of the trainings")
    search_ = command("search", search, "what searches are worth", "runs/layoutbench-search")
    cli.add_seeds(search_, "one search each; none of the table's", (10, 11, 12, 13, 14))
    regret_ = command("regret", regret, "what chosen layouts are worth")
    regret_.add_argument("--layouts", nargs="+", default=[], metavar="LETTERS",
                         help="the chosen ones, such as aaaddd")  # fmt: skip
    regret_.add_argument("--among", type=Path, metavar="FILE",
                         help="only the networks of this table (default: all)")  # fmt: skip
    regret_.add_argument("--trainings", **NUMBER, help="what the search cost (default: 1 to 16)")
    propose_ = command("propose", propose, "what searches propose", "runs/layoutbench-propose")
    cli.add_seeds(propose_, "one search each; none of the table's", (10, 11, 12))
    propose_.add_argument("--within", nargs="+", required=True, metavar="AMOUNT",
                          help="budgets of FLOPs, e.g. 0.5x 0.65x")  # fmt: skip
    replay_ = command("replay", replay, "what methods that train are worth", "runs/replay")
    _add_replay(replay_)
    rank_ = command("rank", rank, "compare a SuperNet's scores with training alone")
    _add_rank(rank_)
    for one in (search_, regret_):
        one.add_argument("--replays", **NUMBER, default=200, help="of random search")
    for one in (make_, again_, search_, propose_, rank_):
        cli.add_workers(one)
    for one in (again_, search_, regret_, replay_):
        one.add_argument(
            "--table", type=Path, default=TABLE, metavar="FILE", help="what layouts are worth"
        )
    return parser.parse_args(argv)


def _add_replay(parser: cli.Parser) -> None:
    add = parser.add_argument
    add("--half", type=Path, required=True, metavar="FILE", help="the layouts at half length")
    add("--within", nargs="+", metavar="AMOUNT",
        help="budgets of FLOPs, e.g. 0.5x (default: all layouts)")  # fmt: skip
    add("--proposals", type=Path, metavar="FILE", help="what searches propose (default: none)")
    add("--replays", type=cli.number_from(2), metavar="N", default=300, help="how many")


def _add_rank(parser: cli.Parser) -> None:
    add = parser.add_argument
    for name, words in (("--equal", "layouts of one cost"), ("--free", "free layouts")):
        add(name, type=cli.number_from(0), metavar="N", default=20, help=words)
    add("--sample-seed", type=int, metavar="N", default=0, help="of the layouts")
    add("--steps", **NUMBER, help="of a training (default: half the experiment's own)")
    cli.add_seeds(parser, "of the trainings; none of the searches'", (100, 101))
    add("--out", type=Path, metavar="DIR", help="default: RUN/rank")


def _plan(arguments: argparse.Namespace) -> RunPlan:
    if arguments.run is None:
        return set_up(*experiment_of(arguments))
    return set_up(load_experiment(arguments.experiment, arguments.set), arguments.run)


def make(arguments: argparse.Namespace) -> int:
    """Train what is missing."""
    plan, stop = _plan(arguments), StopRequest()
    layouts = layouts_of(plan.experiment.model)
    if arguments.within is not None:
        layouts = layouts_within(plan, layouts, arguments.within)
    seeds = len(arguments.seeds)
    print(f"{len(layouts)} layouts, {seeds} seed{'s' if seeds > 1 else ''} each", flush=True)
    with stop.listening():
        path = make_table(plan, layouts, arguments.seeds, workers=arguments.workers, stop=stop)
    print(f"table: {path}")
    return 0


def again(arguments: argparse.Namespace) -> int:
    """Train some rows with a fresh seed and say how far they lie off."""
    plan, stop, seed = _plan(arguments), StopRequest(), arguments.seed
    table = checked_table(arguments.table, plan.experiment, plan.inputs())
    drawn = np.random.default_rng(seed).permutation(table.layouts)
    layouts = sorted(str(layout) for layout in drawn[: arguments.rows])
    with stop.listening():
        path = make_table(plan, layouts, [seed], workers=arguments.workers, stop=stop)
    mean, deviation = table.mean_nats("test"), table.pooled_deviation("test")
    worst = 0.0
    for row in read_table(path).rows:
        if row.seed == seed and row.layout in layouts:
            off = (row.test_nats - mean[row.layout]) / deviation
            worst = max(worst, abs(off))
            print(
                f"{row.layout}: test {row.test_nats:.4f} nats, in the table "
                f"{mean[row.layout]:.4f}; {off:+.2f} standard deviations"
            )
    print(
        f"{len(layouts)} rows, the worst {worst:.2f} standard deviations of one training "
        f"({deviation:.4f} nats) off, {MOST_DEVIATIONS:g} allowed"
    )
    return int(worst > MOST_DEVIATIONS)


def search(arguments: argparse.Namespace) -> int:
    """Search with several seeds and weigh what they choose."""
    plan, stop, seeds = _plan(arguments), StopRequest(), arguments.seeds
    table = checked_table(arguments.table, plan.experiment, plan.inputs())
    why = "and a search would begin as one of them did; give others"
    check_fresh(seeds, "--seeds", table.seeds, "the seeds of the table's trainings", why)
    is_rule = plan.experiment.derive.method in RULES
    scripts = ("derive",) if is_rule else ("search", "derive")
    with stop.listening():
        how = {"workers": arguments.workers, "stop": stop}
        search_all(plan.experiment, plan.run_dir, seeds, scripts, **how)
    found = weigh(plan, seeds, table, replays=arguments.replays)
    print(_chosen_line(found["layouts"], Regrets(**found["regrets"])))
    print(
        f"a search costs {found['cost']:.2f} trainings, the chosen layout's own one more; "
        f"random search with {found['trainings']} trainings: regret {found['random_regret']:.4f}"
    )
    print(f"searches less random search: {Difference(**found['difference'])}")
    for name, (layout, above) in found["rules"].items():
        print(f"rule {name}, with one training: {layout}, regret {above:.4f}")
    print(f"written: {plan.run_dir / REGRET_FILE}")
    return 0


def regret(arguments: argparse.Namespace) -> int:
    """Print the noise of the table, random search at several costs, and given layouts' regret."""
    table = read_table(arguments.table)
    if arguments.among is not None:
        table = table.among(read_table(arguments.among))
    lines = _noise_lines(table)
    counts = [arguments.trainings] if arguments.trainings else [1, 2, 4, 8, 16]
    for n in counts:
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
    plan, stop = _plan(arguments), StopRequest()
    with stop.listening():
        how = {"workers": arguments.workers, "stop": stop}
        jobs = search_all(plan.experiment, plan.run_dir, arguments.seeds, ("search",), **how)
    key = (plan.run_dir / PROPOSALS).with_suffix(".json")
    claim_key(key, key_of(plan.experiment, plan.inputs()))
    print(f"proposals: {propose_within(plan, jobs, arguments.within)}")
    return 0


def replay(arguments: argparse.Namespace) -> int:
    """Replay all methods on a table and say what they reached."""
    plan = _plan(arguments)
    tables = read_tables(plan, arguments.table, arguments.half)
    proposals = dict[str, Sequence[Proposal]]()
    if path := arguments.proposals:
        key = key_of(plan.experiment, plan.inputs())
        check_key(path.with_suffix(".json"), key, "give the proposals of searches of this one")
        proposals |= read_proposals(path)
    amounts = arguments.within or [None]
    contests = replay_all(plan, tables, amounts, replays=arguments.replays, proposals=proposals)
    print("\n\n".join(contest_text(*each) for each in contests.items()))
    print(f"written: {plan.run_dir / 'replay.json'}")
    return 0


def rank(arguments: argparse.Namespace) -> int:
    """Score and train drawn layouts and compare; done before it is not done again."""
    plan, stop = _plan(arguments), StopRequest()
    searches = plan.experiment.derive.searches or [plan.experiment.run.seed]
    sample = sample_of(plan, searches, arguments.equal, arguments.free, arguments.sample_seed)
    folder = arguments.out or plan.run_dir / "rank"
    ranked = Ranked(plan, sample, searches, arguments.seeds, arguments.steps, folder)
    ranked.open()
    print(greeting(ranked), flush=True)
    with stop.listening():
        ranked.train(workers=arguments.workers, stop=stop)
    show(ranked)
    return 0


def _noise_lines(table: LayoutTable) -> list[str]:
    noise = noise_of(table)
    return [
        f"{len(table.layouts)} layouts, {len(table.seeds)} seeds each; test nats per token: "
        f"standard deviation over layouts {noise.spread:.4f}, over seeds {noise.deviation:.4f}",
        f"Kendall's tau between two seeds {noise.agreement:.3f}; a perfect score would reach about "
        f"{noise.ceiling:.3f} with the seeds' mean",
        f"regret of the best by one training of every layout {noise.regret:.4f}",
        "regrets begin at the table's best layout, whose own luck is in all; differences lack it",
    ]


def _chosen_line(layouts: Sequence[str], chosen: Regrets) -> str:
    pairs = zip(layouts, chosen.each, strict=True)
    values = ", ".join(f"{layout} {value:.4f}" for layout, value in pairs)
    return f"chosen: regret {chosen.mean:.4f}, n = {len(chosen.each)}: {values}"


if __name__ == "__main__":
    sys.exit(main())
