"""What searches propose within budgets, for replays of methods on a table of layouts."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import layout_letters
from nas.costs.config import BudgetConfig
from pipeline.context import RunPlan, set_up
from pipeline.derive import derivation
from pipeline.jobs import Job, run_all
from pipeline.layoutbench import search_cost
from pipeline.seeds import seeded
from training.signals import StopRequest
from utils.files import csv_of, write_whole

PROPOSALS = "proposals.csv"
COLUMNS = ("within", "search", "cost", "layout", "supernet_nats")


@dataclass(frozen=True)
class Proposal:
    """The layouts that one search proposes within a budget, the best by its SuperNet first.

    `cost` of the search and of the scores, over the FLOPs of a layout in trainings of it.
    """

    search: int
    cost: float
    layouts: tuple[str, ...]


def propose(
    plan: RunPlan, seeds: Sequence[int], amounts: Sequence[str], *, workers: int, stop: StopRequest
) -> Path:
    """Search with every seed in RUN/seed-N, derive by `top_k` within every budget of FLOPs.

    Writes RUN/proposals.csv. What is searched already is not searched again.

    Raises:
        ValueError: an amount is none of FLOPs, or a search failed.
        Stopped: a signal came; everything is saved.
    """
    budgets = {amount: BudgetConfig(flops=amount) for amount in amounts}
    jobs = [
        Job(
            f"seed {seed}",
            seeded(plan.experiment, seed),
            ("search",),
            plan.run_dir / f"seed-{seed}",
        )
        for seed in seeds
    ]
    run_all(
        jobs, workers=workers, stop=stop, done=lambda job: print(f"{job.name}: done", flush=True)
    )
    rows = list[dict[str, Any]]()
    for job in jobs:
        searched = set_up(job.experiment, job.folder)
        for amount, budget in budgets.items():
            options = {"method": "top_k", "budget": budget, "gap": False, "fill": None}
            config = job.experiment.derive.model_copy(update=options)
            scored = derivation(searched, config).considered
            cost = search_cost(searched, len(scored))
            for one in sorted(scored, key=lambda one: one.score.nats_per_token):
                nats = round(one.score.nats_per_token, 6)
                letters = layout_letters(one.layout).replace(" ", "")
                values = (amount, job.experiment.run.seed, round(cost, 2), letters, nats)
                rows.append(dict(zip(COLUMNS, values, strict=True)))
    return write_whole(plan.run_dir / PROPOSALS, csv_of(rows, COLUMNS))


def read_proposals(path: Path) -> Mapping[str, Sequence[Proposal]]:
    """By budget what each search proposes.

    Raises:
        ValueError: a row is damaged.
    """
    layouts: dict[tuple[str, int, float], list[str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.DictReader(file), start=2):
            try:
                key = row["within"], int(row["search"]), float(row["cost"])
                if not 0 <= key[2] < math.inf:
                    raise ValueError("a cost below 0, or none")
                layouts.setdefault(key, []).append(row["layout"])
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}:{line}: not a row of proposals ({error}); make it again (propose)"
                ) from None
    proposals: dict[str, list[Proposal]] = {}
    for (within, search, cost), of in layouts.items():
        proposals.setdefault(within, []).append(Proposal(search, cost, tuple(of)))
    return proposals
