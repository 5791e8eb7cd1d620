"""Methods that train, replayed on tables of trainings: what they choose, and what it is worth.

Every replay has a part of the tables' networks, drawn anew, and gives the seeds another order, so
that a method which draws nothing varies too. Methods see validation nats; an answer is judged by
test nats. Of each network the trainings of the seeds that chose are not those that judge, where
the table has a seed more than a method needs. Baselines of the predictor have as much training as
it took; finals take what they take.

N networks   S seeds   R replays
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.layoutbench.making import checked_table, flops_limit
from benchmarks.layoutbench.methods import BASELINES, SearchFinals, cost_of
from benchmarks.layoutbench.searches import Proposal
from benchmarks.layoutbench.table import LayoutTable
from model import layout_letters
from nas.derivation.predictor import Predictor, features_of
from nas.derivation.space import layout_space
from nas.derivation.trained import Trained
from nas.derivation.training import Array, Length, Method, Results, Space, Trainings
from nas.statistics.intervals import paired_interval
from pipeline.experiment import with_settings
from pipeline.plan import RunPlan
from training.run_dir import commit
from utils.files import write_whole
from utils.text import aligned

PREDICTOR, FINALS = "predictor", "finals"
SEARCH, WITH_SEARCH, FINALS_WITH_SEARCH = "search, finals", "predictor + search", "finals + search"
ALL, REPLAY_FILE = "all layouts", "replay.json"
# Of the networks that no rule names a replay has this part.
SHARE = 0.75


@dataclass(frozen=True)
class Truth:
    """A table of trainings of the networks of a space.

    Attributes:
        valid_NS, test_NS: nats at full length by network and seed.
        half_N: validation nats at half length.
    """

    space: Space
    valid_NS: Array
    test_NS: Array
    half_N: Array

    def nats(
        self, networks: Sequence[int], length: Length, seeds: Sequence[int]
    ) -> Sequence[float]:
        """Look trainings up, as `Trainings` asks for them; seeds of full length begin at 1."""
        columns = [self.half_N if length == "half" else self.valid_NS[:, s - 1] for s in seeds]
        return [float(nats_N[network]) for nats_N in columns for network in networks]

    def part(self, numbers: NDArray[np.int64], seeds: Sequence[int]) -> "Truth":
        """The table of some of its networks, with seeds in this order."""
        space = replace(
            self.space,
            kind_NL=self.space.kind_NL[numbers],
            flops_N=self.space.flops_N[numbers],
            rules={},
            proposed=(),
            layouts=(),
        )
        place = {int(number): at for at, number in enumerate(numbers)}
        rules = {name: place[n] for name, n in self.space.rules.items() if n in place}
        proposed = tuple(place[n] for n in self.space.proposed if n in place)
        return Truth(
            replace(space, rules=rules, proposed=proposed),
            self.valid_NS[numbers][:, list(seeds)],
            self.test_NS[numbers][:, list(seeds)],
            self.half_N[numbers],
        )


@dataclass(frozen=True)
class Outcome:
    """One replay of a method.

    Attributes:
        network: its answer.
        regret: test nats of the answer above those of the best network, by seeds that judge.
        cost: of all its trainings, in full trainings of a network of mean FLOPs.
        results: what was trained.
    """

    network: int
    regret: float
    cost: float
    results: Results = field(repr=False, compare=False)


def replay(truth: Truth, method: Method, judges: Sequence[int], spent: float = 0.0) -> Outcome:
    """Run a method on a table to its answer; seeds 1, 2, ... are the table's in order.

    `judges` are the columns of test nats that judge; the best network is that by the mean of the
    others, where there are others, so that its luck counts no more than the answer's. `spent` is
    what was paid before, such as a search.
    """
    train = Trainings(truth.nats)
    network = method(truth.space, train).network
    judged_N = truth.test_NS[:, list(judges)].mean(axis=1)
    others = [seed for seed in range(truth.test_NS.shape[1]) if seed not in judges]
    best = int(truth.test_NS[:, others or list(judges)].mean(axis=1).argmin())
    return Outcome(
        network=network,
        regret=float(judged_N[network] - judged_N[best]),
        cost=spent + sum(cost_of(truth.space, training) for training in train.results),
        results=train.results,
    )


@dataclass(frozen=True)
class Part:
    """The table that one replay sees, and the columns of seeds that judge."""

    number: int
    truth: Truth
    judges: tuple[int, ...]

    def without_proposals(self) -> "Part":
        """The same part for methods that pay for no search."""
        space = replace(self.truth.space, proposed=())
        return replace(self, truth=replace(self.truth, space=space))


def parts(
    truth: Truth, count: int, seed: int = 0, proposals: Sequence[tuple[int, ...]] = ()
) -> Iterator[Part]:
    """So many parts of a table, each with all networks that are named and `SHARE` of the others.

    The last of the shuffled seeds judges alone where there are three or more, else all judge. Of
    the proposals of several searches, each part has those of one in turn.
    """
    generator = np.random.default_rng(seed)
    named = np.unique([*truth.space.rules.values(), *chain(*proposals)]).astype(np.int64)
    others = np.setdiff1d(np.arange(len(truth.space)), named)
    for number in range(count):
        kept = generator.choice(others, size=round(SHARE * len(others)), replace=False)
        seeds = generator.permutation(truth.valid_NS.shape[1]).tolist()
        judges = (len(seeds) - 1,) if len(seeds) > 2 else (*range(len(seeds)),)
        proposed = proposals[number % len(proposals)] if proposals else ()
        of_search = replace(truth, space=replace(truth.space, proposed=proposed))
        numbers = np.sort(np.concatenate([named, kept]))
        yield Part(number, of_search.part(numbers, seeds), judges)


def covered(part: Part, method: Predictor, outcome: Outcome, level: float = 0.8) -> float | None:
    """Of the networks without a full training, how many lie in their interval of this level.

    Of a network's validation nats less the answer's, by a seed that judges, an interval is expected
    from all that the method trained. None: no network is left, or no seed.
    """
    truth, (judge, *_) = part.truth, part.judges
    trained = {one.network for one in outcome.results if one.length == "full"}
    rest = np.setdiff1d(np.arange(len(truth.space)), [*trained])
    if len(part.judges) > 1 or not len(rest):
        return None
    now = method.expected(features_of(truth.space, method.priors), outcome.results)
    noise = 2 * method.deviations.noise_full**2
    sd_N = np.sqrt(now.sd_beside_N(outcome.network) ** 2 + noise)
    above_N = truth.valid_NS[:, judge] - truth.valid_NS[outcome.network, judge]
    off_N = above_N - (now.mean_N - now.mean_N[outcome.network])
    inside_N = np.abs(off_N) <= NormalDist().inv_cdf((1 + level) / 2) * sd_N
    return float(inside_N[rest].mean())


@dataclass(frozen=True)
class Proposals:
    """The networks that one search proposes, the best first, and what it cost."""

    networks: tuple[int, ...]
    cost: float


@dataclass(frozen=True)
class Contest:
    """What methods reached, replay by replay, on the same parts of a table.

    Attributes:
        regrets_nats: by method; "best rule" is that of least validation nats by the seeds that do
            not judge, "oracle rule" that of least test nats by all. Neither pays for its choice.
        costs: by method, in full trainings of a network of mean FLOPs.
        networks: how many there are to choose from.
        rules: how many of them rules name.
        coverage: how many networks lie within the predictor's 80% intervals; None: no seed is left
            that could say so.
    """

    regrets_nats: Mapping[str, Array]
    costs: Mapping[str, Array]
    networks: int
    rules: int
    coverage: float | None

    def ahead(self, baseline: str) -> tuple[float, float]:
        """The predictor's mean regret less a baseline's, and the half-width of its interval."""
        less = self.regrets_nats[PREDICTOR] - self.regrets_nats[baseline]
        return paired_interval(less.tolist())


def contest(truth: Truth, count: int, seed: int = 0, searches: Sequence[Proposals] = ()) -> Contest:
    """Replay all methods on so many parts of a table.

    Where searches were made, each replay has the proposals of one: a method that trains them for as
    much as the predictor costs, search included, and the predictor and finals that train them too,
    which pay for the search on top.
    """
    outcomes: dict[str, list[Outcome]] = {}
    rules: dict[str, list[float]] = {}
    coverage = list[float]()
    predictor = Predictor()
    for part in parts(truth, count, seed, [one.networks for one in searches]):
        alone = part.without_proposals()
        first = replay(alone.truth, predictor, part.judges)
        outcomes.setdefault(PREDICTOR, []).append(first)
        for name, method_of in BASELINES.items():
            method = method_of(first.cost, part.number)
            outcomes.setdefault(name, []).append(replay(alone.truth, method, part.judges))
        outcomes.setdefault(FINALS, []).append(replay(alone.truth, Trained(), part.judges))
        if searches:
            spent = searches[part.number % len(searches)].cost
            with_search: dict[str, Method] = {
                SEARCH: SearchFinals(first.cost, spent),
                WITH_SEARCH: predictor,
                FINALS_WITH_SEARCH: Trained(),
            }
            for name, method in with_search.items():
                outcome = replay(part.truth, method, part.judges, spent)
                outcomes.setdefault(name, []).append(outcome)
        for name, regret in _rule_regrets(part).items():
            rules.setdefault(name, []).append(regret)
        inside = covered(alone, predictor, first)
        coverage += [] if inside is None else [inside]
    regrets = {name: [one.regret for one in of] for name, of in outcomes.items()} | rules
    return Contest(
        regrets_nats={name: np.array(of) for name, of in regrets.items()},
        costs={name: np.array([one.cost for one in of]) for name, of in outcomes.items()},
        networks=len(truth.space),
        rules=len(set(truth.space.rules.values())),
        coverage=float(np.mean(coverage)) if coverage else None,
    )


def _rule_regrets(part: Part) -> dict[str, float]:
    numbers = list(dict.fromkeys(part.truth.space.rules.values()))
    if not numbers:
        return {}
    test_NS, judges = part.truth.test_NS, list(part.judges)
    others = [seed for seed in range(test_NS.shape[1]) if seed not in judges] or judges
    judged_N, chosen_N = (
        test_NS[:, judges].mean(axis=1),
        part.truth.valid_NS[:, others].mean(axis=1),
    )
    best = test_NS[:, others].mean(axis=1).argmin()
    chosen = {"best rule": chosen_N, "oracle rule": test_NS.mean(axis=1)}
    return {
        name: float(judged_N[min(numbers, key=lambda n: nats_N[n])] - judged_N[best])
        for name, nats_N in chosen.items()
    }


def read_tables(plan: RunPlan, full: Path, half: Path) -> tuple[LayoutTable, LayoutTable]:
    """Trainings of the same layouts at full length with several seeds, and at half with one.

    ValueError where one does not belong to this experiment.
    """
    steps = {"retrain.steps": max(1, plan.stages.first // 2)}
    of_half = with_settings(plan.experiment, steps, ["retrain.epochs"])
    inputs = plan.inputs()
    return checked_table(full, plan.experiment, inputs), checked_table(half, of_half, inputs)


def within(
    plan: RunPlan, full: LayoutTable, half: LayoutTable, amount: str | None
) -> tuple[Truth, list[str]]:
    """What all networks within a limit of FLOPs are worth, and their layouts in the tables.

    ValueError where the tables lack one of them.
    """
    request = plan.request(plan.experiment.derive, [])
    limits = () if amount is None else (flops_limit(plan, amount),)
    # A table's networks, those without context among them.
    space, layouts = layout_space(replace(request, limits=limits)), list[str]()
    for layout in space.layouts:
        letters = layout_letters(layout).replace(" ", "")
        if (name := full.layout_of(letters)) is None:
            raise ValueError(f"--within {amount}: the table has no {letters}, which is within it")
        layouts.append(name)
    valid, test, short = full.nats("valid"), full.nats("test"), half.nats("valid")
    truth = Truth(
        space=space,
        valid_NS=np.array([valid[layout] for layout in layouts]),
        test_NS=np.array([test[layout] for layout in layouts]),
        half_N=np.array([short[layout][0] for layout in layouts]),
    )
    return truth, layouts


def replay_all(
    plan: RunPlan,
    tables: tuple[LayoutTable, LayoutTable],
    amounts: Sequence[str | None],
    *,
    replays: int,
    proposals: Mapping[str, Sequence[Proposal]],
) -> dict[str, Contest]:
    """Replay all methods within each limit and write RUN/replay.json."""
    contests = dict[str, Contest]()
    for amount in amounts:
        truth, layouts = within(plan, *tables, amount)
        number = {layout: n for n, layout in enumerate(layouts)}
        unit = float(truth.space.flops_N.mean())
        searches = [
            Proposals(tuple(number[tables[0].layout_of(one) or ""] for one in named), cost / unit)
            for cost, named in proposals.get(amount or "", ())
        ]
        contests[amount or ALL] = contest(truth, replays, searches=searches)
    summary = {
        "replays": replays,
        "share": SHARE,
        "predictor": asdict(Predictor()),
        "commit": commit(),
        "budgets": {amount: _summary(of) for amount, of in contests.items()},
    }
    plan.run_dir.mkdir(parents=True, exist_ok=True)
    write_whole(plan.run_dir / REPLAY_FILE, json.dumps(summary, indent=1) + "\n")
    return contests


def _summary(one: Contest) -> dict[str, Any]:
    return {
        "networks": one.networks,
        "rules": one.rules,
        "coverage_of_80": one.coverage,
        "methods": {
            name: {
                "regret_nats": float(regret_R.mean()),
                "half_width": paired_interval(regret_R.tolist())[1],
                "cost": float(one.costs[name].mean()) if name in one.costs else None,
                "predictor_less": one.ahead(name) if name != PREDICTOR else None,
            }
            for name, regret_R in one.regrets_nats.items()
        },
    }


def contest_text(amount: str, one: Contest) -> str:
    """What every method reached, the best first, for the screen."""
    cells = [["method", "regret", "95%", "cost", "predictor less it"]]
    by_mean = sorted(one.regrets_nats.items(), key=lambda item: float(item[1].mean()))
    for name, regret_R in by_mean:
        mean, half_width = paired_interval(regret_R.tolist())
        cost = f"{one.costs[name].mean():.1f}" if name in one.costs else ""
        less = ""
        if name != PREDICTOR:
            difference, width = one.ahead(name)
            less = f"{difference:+.4f} [{difference - width:+.4f}, {difference + width:+.4f}]"
        cells.append([name, f"{mean:.4f}", f"± {half_width:.4f}", cost, less])
    head = amount if amount == ALL else f"within {amount}"
    head += f": {one.networks} networks, {one.rules} of them by rules"
    lines = [head, *aligned(cells, left=1)]
    if one.coverage is not None:
        lines.append(f"the predictor's 80% intervals hold {one.coverage:.0%} of the networks")
    return "\n".join(lines)
