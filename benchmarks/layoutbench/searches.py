"""Searches with several seeds: what they choose, what they propose within budgets, what they cost.

Costs are counted in FLOPs; over those of a layout they are the number of its trainings.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.layout_rows import rows_of
from benchmarks.layoutbench.regret import difference, random_search, regret_of
from benchmarks.layoutbench.table import LayoutTable
from model import Architecture, layout_letters, load_architecture
from nas.costs.config import BudgetConfig
from nas.derivation import RULES, TRAINED
from nas.search.plan import TRAINING, search_flops
from pipeline.derive import derivation, derive
from pipeline.experiment import Experiment
from pipeline.jobs import Job, run_all
from pipeline.layout_scores import seeded
from pipeline.plan import RunPlan, set_up
from pipeline.search import VALIDATED
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import csv_of, write_whole

REGRET_FILE, PROPOSALS = "regret.json", "proposals.csv"
COLUMNS = ("within", "search", "cost", "layout", "supernet_nats")
# What a training costs of one of full length.
_LENGTHS = {"half": 0.5, "full": 1.0}


def search_all(
    experiment: Experiment,
    run_dir: Path,
    seeds: Sequence[int],
    scripts: Sequence[str],
    *,
    workers: int,
    stop: StopRequest,
) -> list[Job]:
    """Run scripts with every seed, each in RUN/seed-N, as `run_all` runs jobs."""
    jobs = [
        Job(f"seed {seed}", seeded(experiment, seed), scripts, run_dir / f"seed-{seed}")
        for seed in seeds
    ]
    run_all(
        jobs, workers=workers, stop=stop, done=lambda job: print(f"{job.name}: done", flush=True)
    )
    return jobs


def weigh(
    plan: RunPlan, seeds: Sequence[int], table: LayoutTable, *, replays: int
) -> dict[str, Any]:
    """Read what the searches chose, weigh it and write RUN/regret.json.

    `cost` is of one search in trainings of a layout of mean cost, its layouts' scores and what the
    derivation trained included, the training of the chosen one not. Random search trains as many
    layouts as both cost, rounded up. Rules cost one training each.
    """
    folders = [plan.run_dir / f"seed-{seed}" for seed in seeds]
    layouts = [_letters(load_architecture(folder / "architecture.json")) for folder in folders]
    largest = max(_cost_of(plan, folder, len(table.layouts)) for folder in folders)
    cost = largest / _mean_flops(plan)
    trainings = min(math.ceil(cost + 1.0), len(table.layouts))
    random = random_search(table, trainings, replays=replays, seed=0)
    parts = {
        "seeds": list(seeds),
        **plan.experiment.model_dump(mode="json", include={"search", "derive"}),
        "commit": commit(),
        "layouts": layouts,
        "regrets": asdict(regret_of(table, layouts)),
        "cost": cost,
        "random_regret": random.mean,
        "trainings": trainings,
        "difference": asdict(difference(table, layouts, random)),
        "rules": _rules(plan, table),
    }
    write_whole(plan.run_dir / REGRET_FILE, json.dumps(parts, indent=1) + "\n")
    return parts


def _rules(plan: RunPlan, table: LayoutTable) -> dict[str, tuple[str, float]]:
    if not {"attention", "dense"} <= {candidate.kind for candidate in plan.candidates}:
        return {}
    regrets = {}
    for name in (name for name in RULES if name not in ("layout", "random")):
        try:
            layout = _letters(derive(plan, method=name))
        except ValueError:  # it needs more slots
            continue
        regrets[name] = layout, regret_of(table, [layout]).mean
    return regrets


def _mean_flops(plan: RunPlan) -> float:
    """Of a layout of the experiment, per token: the mean over all of them."""
    flops = plan.costs.by_label.values()
    return plan.costs.rest + len(plan.slots) * sum(flops) / len(flops)


def _letters(architecture: Architecture) -> str:
    return architecture.letters().replace(" ", "")


def _cost_of(plan: RunPlan, folder: Path, networks: int) -> float:
    """What search and derivation in a folder cost, as `search_cost` has it."""
    derive, name = plan.experiment.derive, load_architecture(folder / "architecture.json").name
    rows = rows_of(folder / "architectures" / f"{name}.csv")
    if derive.method in RULES:
        return 0.0
    if derive.method not in TRAINED:
        return search_cost(plan, len(rows))
    # How many layouts it scored to propose some is not kept: as many as it may.
    most = derive.top if plan.experiment.search.alpha_learns else derive.evaluations
    trained = sum(_LENGTHS[row["length"]] * float(row["flops_per_token"]) for row in rows)
    return search_cost(plan, min(most, networks)) + trained


def search_cost(plan: RunPlan, scored: int) -> float:
    """What a search and the scores of so many layouts cost.

    Over the forward FLOPs per token of a layout it is the number of that layout's trainings that
    cost as much. Both validate as often; a search validates the soft net and the one-hot one, or
    some layouts where alpha does not learn.
    """
    experiment, costs = plan.experiment, plan.costs
    flops, slots = list(costs.by_label.values()), len(plan.slots)
    layout = _mean_flops(plan)
    schedules = plan.schedules()
    tokens = experiment.data.batch * experiment.data.segment
    valid = len(plan.prepared.tokens["valid"])
    steps, every = plan.stages.steps, experiment.run.validate_every
    # A phase validates every so many steps, and at its last one.
    in_search, in_training = math.ceil(schedules.steps / every), math.ceil(steps / every)
    soft = costs.rest + slots * sum(flops)
    validated = soft + layout if experiment.search.alpha_learns else VALIDATED * layout
    spent = tokens * sum(search_flops(schedules, flops, costs.rest, slots))
    spent += in_search * valid * validated
    spent += scored * min(experiment.derive.score_tokens or valid, valid) * layout
    return spent / (tokens * steps * TRAINING + in_training * valid)


def propose_within(plan: RunPlan, searches: Sequence[Job], amounts: Sequence[str]) -> Path:
    """Derive from finished searches by `top_k` within every budget of FLOPs.

    Writes RUN/proposals.csv.
    """
    rows = list[dict[str, Any]]()
    for job in searches:
        searched = set_up(job.experiment, job.folder)
        for amount in amounts:
            budget = BudgetConfig(flops=amount)
            options = {"method": "top_k", "budget": budget, "gap": False, "fill": None}
            config = job.experiment.derive.model_copy(update=options)
            scored = derivation(searched, config).derived.considered
            cost = search_cost(searched, len(scored))
            for one in sorted(scored, key=lambda one: one.score.nats_per_token):
                nats = round(one.score.nats_per_token, 6)
                letters = layout_letters(one.layout).replace(" ", "")
                values = (amount, job.experiment.run.seed, round(cost, 2), letters, nats)
                rows.append(dict(zip(COLUMNS, values, strict=True)))
    return write_whole(plan.run_dir / PROPOSALS, csv_of(rows, COLUMNS))


# The cost of a search and of its scores, over the FLOPs of a layout in trainings of it, and the
# layouts that it proposes, the best by its SuperNet first.
Proposal = tuple[float, list[str]]


def read_proposals(path: Path) -> Mapping[str, Sequence[Proposal]]:
    """By budget what each search proposes."""
    proposals: dict[str, dict[str, Proposal]] = {}
    for row in rows_of(path):
        of_budget = proposals.setdefault(row["within"], {})
        of_budget.setdefault(row["search"], (float(row["cost"]), []))[1].append(row["layout"])
    return {within: [*of.values()] for within, of in proposals.items()}
