"""Methods that train, replayed on a table of layouts at full and at half length."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from model import layout_letters
from nas.derivation.space import layout_space
from nas.probing.contest import PREDICTOR, Contest, Proposals, contest
from nas.probing.predictor import Predictor
from nas.probing.replay import SHARE, Truth
from nas.statistics.intervals import paired_interval
from nas.tabular.table import LayoutTable, read_table
from pipeline.context import RunPlan
from pipeline.derive import request_of
from pipeline.experiment import with_settings
from pipeline.layoutbench import flops_limit
from pipeline.proposals import Proposal
from pipeline.table_key import check_key, key_of
from training.run_dir import commit
from utils.files import write_whole
from utils.text import aligned

ALL = "all layouts"
REPLAY_FILE = "replay.json"
_OTHER = "give the tables of this experiment (--table, --half)"


@dataclass(frozen=True)
class Tables:
    """Trainings of the same layouts: at full length with several seeds, at half with one."""

    full: LayoutTable
    half: LayoutTable


def read_tables(plan: RunPlan, full: Path, half: Path) -> Tables:
    """Both tables, where they belong to this experiment and lack no training.

    Raises:
        ValueError: they do not, one is damaged, or a layout lacks a seed.
    """
    steps = {"retrain.steps": plan.half_length}
    of_half = with_settings(plan.experiment, steps, ["retrain.epochs"])
    tables = Tables(read_table(full), read_table(half))
    every = tables.full.layouts
    for path, experiment, table in (
        (full, plan.experiment, tables.full),
        (half, of_half, tables.half),
    ):
        check_key(path.with_suffix(".json"), key_of(experiment, plan.inputs()), _OTHER)
        trained = {(row.layout, row.seed) for row in table.rows}
        wanted = [(layout, seed) for seed in table.seeds for layout in every]
        if missing := [one for one in wanted if one not in trained]:
            layout, seed = missing[0]
            raise ValueError(
                f"{path}: {len(missing)} trainings are missing, such as {layout} with seed {seed}; "
                "go on with `python -m tools.layoutbench make`"
            )
    return tables


@dataclass(frozen=True)
class Within:
    """All networks within a limit of FLOPs: what they are worth, and their layouts by number."""

    truth: Truth
    layouts: tuple[str, ...]

    def searches(self, proposals: Sequence[Proposal], table: LayoutTable) -> list[Proposals]:
        """What searches propose, by number, with costs in trainings.

        Raises:
            ValueError: a layout is not among these.
        """
        number = {layout: n for n, layout in enumerate(self.layouts)}
        unit = float(self.truth.space.flops_N.mean())
        searches = list[Proposals]()
        for one in proposals:
            names = [table.layout_of(layout) for layout in one.layouts]
            numbers = [number.get(name or "") for name in names]
            if None in numbers:
                raise ValueError(
                    f"--proposals: {one.layouts[numbers.index(None)]} of search {one.search} is "
                    "not among the table's layouts within that budget; make them again (propose)"
                )
            known = tuple(n for n in numbers if n is not None)
            searches.append(Proposals(known, one.cost / unit))
        return searches


def within(plan: RunPlan, tables: Tables, amount: str | None) -> Within:
    """The networks within a limit of FLOPs by the tables.

    Raises:
        ValueError: the limit is none, or the tables lack a network within it.
    """
    request = request_of(plan, plan.experiment.derive, [])
    limits = () if amount is None else (flops_limit(plan, amount),)
    # A table's networks, those without context among them.
    candidates = layout_space(replace(request, limits=limits))
    layouts = list[str]()
    for layout in candidates.layouts:
        letters = layout_letters(layout).replace(" ", "")
        if (name := tables.full.layout_of(letters)) is None:
            raise ValueError(
                f"--within {amount}: the table has no {letters}, which is within it; give less, or "
                "make a table with more"
            )
        layouts.append(name)
    valid, test = (tables.full.nats(split) for split in ("valid", "test"))
    half = tables.half.nats("valid")
    truth = Truth(
        space=candidates.space,
        valid_NS=np.array([valid[layout] for layout in layouts]),
        test_NS=np.array([test[layout] for layout in layouts]),
        half_N=np.array([half[layout][0] for layout in layouts]),
    )
    return Within(truth, tuple(layouts))


def replay_all(
    plan: RunPlan,
    tables: Tables,
    amounts: Sequence[str | None],
    *,
    replays: int,
    proposals: Mapping[str, Sequence[Proposal]],
) -> dict[str, Contest]:
    """Replay all methods within each limit and write RUN/replay.json."""
    contests = dict[str, Contest]()
    for amount in amounts:
        networks = within(plan, tables, amount)
        searches = networks.searches(proposals.get(amount or "", ()), tables.full)
        contests[amount or ALL] = contest(networks.truth, replays, searches=searches)
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
