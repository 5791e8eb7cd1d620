"""Searches measured on LayoutBench: what they choose, what they cost, beside random search."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from assembly.architectures import derive
from assembly.costs import layout_costs
from assembly.fleet import Job, run_all
from assembly.lengths import retrain_stages, search_steps
from assembly.searching import VALIDATED
from assembly.workbench import Workbench
from experiment import with_settings
from model import Architecture, load_architecture
from nas.derivation import RULES
from nas.search.flops import TRAINING, search_flops
from nas.search.plan import SearchPlan
from nas.tabular.regret import Difference, Regrets, difference, random_search, regret_of
from nas.tabular.table import LayoutTable
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import write_whole

FOUND = "regret.json"


@dataclass(frozen=True)
class Found:
    """What the searches of several seeds came to.

    Attributes:
        layouts: the chosen ones, in the order of the seeds.
        regrets: theirs.
        cost: of one search in trainings of a layout of mean cost, its layouts' scores included,
            the training of the chosen one not.
        random_regret: mean regret of random search at equal cost.
        trainings: how many layouts random search trains for that.
        difference: the searches' mean regret less random search's.
        rules: the layouts of the rules, which cost one training each, and their regrets.
    """

    layouts: tuple[str, ...]
    regrets: Regrets
    cost: float
    random_regret: float
    trainings: int
    difference: Difference
    rules: Mapping[str, tuple[str, float]]


def search_all(bench: Workbench, seeds: Sequence[int], *, workers: int, stop: StopRequest) -> None:
    """Search and derive with every seed, each in RUN/seed-N; what is done already stays.

    Raises:
        ValueError: a run failed.
        Stopped: a signal came; everything is saved.
    """
    experiment = bench.experiment
    scripts = ("derive",) if experiment.derive.method in RULES else ("search", "derive")
    jobs = [
        Job(f"seed {seed}", with_settings(experiment, _seeds(seed)), scripts, folder)
        for seed, folder in _folders(bench, seeds).items()
    ]
    run_all(
        jobs, workers=workers, stop=stop, done=lambda job: print(f"{job.name}: done", flush=True)
    )


def weigh(bench: Workbench, seeds: Sequence[int], table: LayoutTable, *, replays: int) -> Found:
    """Read what the searches chose, weigh it and write RUN/regret.json.

    Random search trains as many layouts as one search and the training of its layout cost,
    rounded up.

    Raises:
        ValueError: a chosen layout is not in the table, or an architecture is damaged.
        OSError: a file cannot be read or written.
    """
    folders = _folders(bench, seeds)
    chosen = [load_architecture(folder / "architecture.json") for folder in folders.values()]
    layouts = tuple(_letters(architecture) for architecture in chosen)
    cost = max(_cost(bench, folder) for folder in folders.values())
    trainings = min(math.ceil(cost + 1.0), len(table.layouts))
    random = random_search(table, trainings, replays=replays, seed=0)
    found = Found(
        layouts=layouts,
        regrets=regret_of(table, layouts),
        cost=cost,
        random_regret=random.mean,
        trainings=trainings,
        difference=difference(table, layouts, random),
        rules=_rules(bench, table),
    )
    parts = {
        "seeds": list(seeds),
        "search": bench.experiment.search.model_dump(mode="json"),
        "derive": bench.experiment.derive.model_dump(mode="json"),
        "commit": commit(),
        **asdict(found),
    }
    write_whole(bench.run_dir / FOUND, json.dumps(parts, indent=1) + "\n")
    return found


def _rules(bench: Workbench, table: LayoutTable) -> dict[str, tuple[str, float]]:
    """What nobody has to search for."""
    if not {"attention", "dense"} <= {each.kind for each in bench.experiment.model.candidates}:
        return {}
    found = {}
    for name in (name for name in RULES if name not in ("layout", "random")):
        config = bench.experiment.derive.model_copy(update={"method": name})
        try:
            layout = _letters(derive(bench, config))
        except ValueError:  # it needs more slots
            continue
        found[name] = layout, regret_of(table, [layout]).mean
    return found


def _letters(architecture: Architecture) -> str:
    return architecture.letters().replace(" ", "")


def _seeds(seed: int) -> dict[str, int]:
    # A method that draws must draw anew, or several seeds would be one.
    return {"run.seed": seed, "derive.seed": seed}


def _folders(bench: Workbench, seeds: Sequence[int]) -> dict[int, Path]:
    return {seed: bench.run_dir / f"seed-{seed}" for seed in seeds}


def _cost(bench: Workbench, folder: Path) -> float:
    """A search's FLOPs over those of training a layout whose slots cost the candidates' mean.

    Both validate as often; a search validates the soft net and the one-hot one, or some layouts
    where alpha does not learn.
    """
    experiment, costs = bench.experiment, layout_costs(bench)
    if experiment.derive.method in RULES:
        return 0.0
    flops, slots = list(costs.by_label.values()), experiment.model.slots
    layout = costs.rest + slots * sum(flops) / len(flops)
    plan = SearchPlan(experiment.search, search_steps(bench), memory=0, segment=1)
    tokens, valid = experiment.data.batch * experiment.data.segment, _valid_tokens(bench)
    steps, every = retrain_stages(bench).steps, experiment.run.validate_every
    soft = costs.rest + slots * sum(flops)
    validated = soft + layout if experiment.search.alpha_learns else VALIDATED * layout
    spent = tokens * sum(search_flops(plan, flops, costs.rest, slots))
    spent += _validations(plan.steps, every) * valid * validated
    spent += _scored(folder) * min(experiment.derive.score_tokens or valid, valid) * layout
    training = tokens * steps * TRAINING + _validations(steps, every) * valid
    return spent / (layout * training)


def _validations(steps: int, every: int) -> int:
    """How often a phase validates: every so many steps, and at its last one."""
    return math.ceil(steps / every)


def _valid_tokens(bench: Workbench) -> int:
    return len(bench.prepared.tokens["valid"])


def _scored(folder: Path) -> int:
    """How many layouts the derivation scored by the SuperNet's weights."""
    name = load_architecture(folder / "architecture.json").name
    path = folder / "architectures" / f"{name}.csv"
    if not path.exists():
        return 0
    with path.open(encoding="utf-8", newline="") as file:
        return sum(1 for _ in csv.reader(file)) - 1
