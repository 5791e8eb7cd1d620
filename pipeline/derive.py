"""From an experiment and a method to an architecture JSON, which a run may choose."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from data import Tokenizer
from model import (
    Architecture,
    ArchitectureCosts,
    FlopsKey,
    Layout,
    TimedCost,
    TokenizerIdentity,
    layout_letters,
    load_architecture,
    reads_context,
)
from nas.costs.budget import Budget
from nas.costs.config import BudgetConfig
from nas.derivation import (
    DERIVATIONS,
    RULES,
    SEARCHED,
    TRAINED,
    Considered,
    Derived,
    Expected,
    Request,
    Train,
    Trained,
    reference_remedy,
    written_layout,
)
from nas.derivation.base import context_limit
from nas.derivation.config import DeriveConfig
from nas.derivation.rules import sandwich_ends
from pipeline.caveats import blind_caveats, layout_caveats
from pipeline.costs import budget_of
from pipeline.derivation_text import considered_csv, front_csv, trained_csv
from pipeline.experiment import Experiment, dump_experiment, idle_clusters
from pipeline.plan import RunPlan, as_saved
from pipeline.run_files import layout_name, short_text
from pipeline.summary import parameter_count
from pipeline.supernet_scores import SupernetScores, with_gap
from pipeline.trainings import LayoutTrainings
from pipeline.within_budget import budget_words, fill_width, used_words, within_budget
from training.run_dir import commit, identity_hash
from utils.files import write_whole
from utils.screen import say

# What run derive.py first may need.
NO_SEARCH = "--method layout, or of a rule, needs no search"


@dataclass(frozen=True)
class Derivation:
    """An architecture, and the layouts that were scored or trained to choose it, if any were."""

    architecture: Architecture
    considered: tuple[Considered, ...] = ()
    trained: tuple[Trained, ...] = ()
    front: tuple[Expected, ...] = ()


def derive(plan: RunPlan, **options: Any) -> Architecture:
    """The architecture of `derivation` with other options of `derive`.

    A rule has one layout, whatever a budget allows, so it has none; `random` draws within it.
    """
    config = plan.experiment.derive.model_copy(update=options)
    if config.method in RULES and config.method != "random":
        free = {"budget": BudgetConfig(), "fill": None, "least_context": 0}
        config = config.model_copy(update=free)
    return derivation(plan, config).architecture


def derivation(plan: RunPlan, config: DeriveConfig, train: Train | None = None) -> Derivation:
    """Derive a layout by a registered method; from a search with its discretisation gap.

    `train` trains what a method asks for; None: one training at a time.

    Raises:
        ValueError: the method is unknown or cannot serve here, a search's caveats are damaged, a
            training failed, or no layout keeps the budget.
        Stopped: a signal came while layouts were trained; everything is saved.
    """
    if config.method not in DERIVATIONS:
        raise ValueError(f"method {config.method!r} is none of {', '.join(DERIVATIONS)}")
    seeds = config.searches or [plan.seed]
    scores = SupernetScores(plan, seeds, config.score_tokens)
    request = request_of(plan, config, _searches_read(plan, config, seeds))
    request = replace(request, score=scores.score, train=train or LayoutTrainings(plan), say=say)
    budget = _budget(plan, request)
    derived, times = within_budget(plan, request, budget)
    if config.method != "layout":
        _check_context(config, derived.layout)
    if config.gap and derived.evidence.pi:
        derived = with_gap(scores, request, derived)
    words = budget_words(config)
    if budget is not None and config.fill is None:
        words = f"{words}{used_words(plan, budget, derived.layout)}"
    filled = None
    if config.fill is not None:
        assert budget is not None, "the section sees to it"
        filled = fill_width(plan, budget, derived.layout)
    name = _name(config, seeds, derived, filled=filled is not None)
    if filled is not None:
        words = f"{words}; {filled.words}{_of_before(derived)}"
        derived, times = replace(derived, layout=filled.layout), filled.times
    evidence = derived.evidence.model_copy(update={"budget": words})
    folders = [plan.search_folder(seed) for seed in seeds]
    caveats = [*evidence.caveats, *(layout_caveats(evidence, folders) if evidence.pi else ())]
    caveats += _doubts(budget)
    derived = replace(derived, evidence=evidence.model_copy(update={"caveats": tuple(caveats)}))
    architecture = architecture_of(plan, derived, name, seeds, times)
    return Derivation(architecture, derived.considered, derived.trained, derived.front)


def _check_context(config: DeriveConfig, layout: Layout) -> None:
    """Raise ValueError where a rule places too few blocks that read context; others keep it."""
    if (count := sum(map(reads_context, layout))) < config.least_context:
        raise ValueError(
            f"derive.least_context: {config.method} has {count} blocks that read earlier tokens "
            f"({layout_letters(layout)}), at least {config.least_context} were asked for; give "
            "less, or another method"
        )


def _doubts(budget: Budget | None) -> list[str]:
    costs = budget.costs if budget else {}
    return [f"warning: {name}: {cost.doubt}" for name, cost in costs.items() if cost.doubt]


def _of_before(derived: Derived) -> str:
    """What is known of a layout before its blocks are widened, and not of the wider one."""
    letters = layout_letters(derived.layout)
    if derived.trained:
        return f" (trained was {letters}, not this width)"
    return f" (scores and gap are those of {letters})" if derived.evidence.pi else ""


def _searches_read(plan: RunPlan, config: DeriveConfig, seeds: Sequence[int]) -> Sequence[int]:
    if config.method in RULES:
        return []
    if config.method in TRAINED and not config.searches:  # it serves without one too
        return [seed for seed in seeds if (plan.search_folder(seed) / "pi.npz").exists()]
    return seeds


def _budget(plan: RunPlan, request: Request) -> Budget | None:
    amounts = request.config.budget.amounts
    if not amounts:
        return None
    filled, name = request.config.fill is not None, request.config.reference
    return budget_of(plan, amounts, reference_layout(request), name, filled=filled)


def reference_layout(request: Request, key: str = "derive.reference") -> Layout:
    """The layout whose costs are 1x; ValueError where derive.reference is none."""
    name = request.config.reference
    chosen = {"method": name} if name in RULES else {"method": "layout", "layout": name}
    config = request.config.model_copy(update=chosen)
    try:
        if name in ("random", "layout", *SEARCHED, *TRAINED):
            raise ValueError(f"{name} is no one layout")
        return RULES[config.method](replace(request, config=config)).layout
    except ValueError as error:
        message = "; ".join(str(error).splitlines())
        raise ValueError(f"{key}: {message}; {reference_remedy(request.candidates)}") from None


def request_of(plan: RunPlan, config: DeriveConfig, seeds: Sequence[int]) -> Request:
    """What a derivation from these searches is given, but for scores.

    Raises:
        ValueError: one of the searches is of another experiment or text.
    """
    return Request(
        config=config,
        candidates=plan.candidates,
        slots=len(plan.slots),
        flops_per_token=plan.costs,
        trajectories={seed: plan.searched_folder(seed) / "pi.npz" for seed in seeds},
        search_steps=plan.search_steps,
        alpha_learned=plan.experiment.search.alpha_learns,
        tie_slots=plan.sizes["tie_slots"],
        limits=context_limit(plan.candidates, len(plan.slots), config.least_context),
    )


def _name(config: DeriveConfig, seeds: Sequence[int], derived: Derived, *, filled: bool) -> str:
    suffix = {
        "par": str(config.p),
        "sandwich": str(sandwich_ends(config, len(derived.layout))),
        "random": str(config.seed),
        **{method: str(config.seed) for method in TRAINED},
        "layout": layout_name(layout_letters(derived.layout)),
    }.get(config.method)
    if derived.evidence.pi:
        suffix = short_text("-".join(map(str, seeds)))
    given = config.budget.model_dump(exclude_none=True).items()
    budget = short_text("-".join(f"{cost}{most}" for cost, most in given))
    last = "filled" if filled else ""
    return "-".join(filter(None, [config.method, suffix, budget.replace(" ", ""), last]))


def architecture_of(
    plan: RunPlan,
    derived: Derived,
    name: str,
    seeds: Sequence[int],
    times: tuple[TimedCost, ...] = (),
) -> Architecture:
    """The architecture of a derived layout, with its costs and whence it comes."""
    data, evidence = plan.experiment.data, derived.evidence
    with torch.device("meta"):
        model = plan.network([[candidate] for candidate in derived.layout])
    caveats = (*blind_caveats(derived.layout, model.options), *evidence.caveats)
    return Architecture(
        name=name,
        slots=derived.layout,
        **plan.sizes,
        tokenizer=TokenizerIdentity(digest=plan.prepared.tokenizer.digest),
        costs=ArchitectureCosts(
            parameters=parameter_count(model),
            flops_per_token=plan.flops_per_token(model),
            key=FlopsKey(batch=data.batch, segment=data.segment, mass=plan.cluster_mass(model)),
            times=times,
        ),
        evidence=evidence.model_copy(update={"caveats": caveats}),
        provenance={
            "corpus_name": data.corpus,
            **plan.inputs(),
            "search_seed": ", ".join(map(str, seeds)),
            "search": identity_hash(plan.experiment.search.identity()),
            "commit": commit() or "unknown",
        },
    )


def architecture_hash(architecture: Architecture) -> str:
    """Hash of what is built; evidence and provenance do not count."""
    return _hash(architecture.model_dump(mode="json", include=architecture.built_of))


def network_hash(architecture: Architecture) -> str:
    """Hash of the network: `architecture_hash` where what adds nothing and labels do not count."""
    rest = architecture.built_of - {"slots", "tie_slots"}
    sizes = architecture.model_dump(mode="json", include=rest)
    return _hash(sizes | asdict(architecture.network))


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_tokenizer(tokenizer: Tokenizer, architecture: Architecture) -> None:
    """Raise ValueError where an architecture was derived for another tokenizer."""
    theirs = (architecture.vocabulary_size, architecture.tokenizer.digest)
    ours = (tokenizer.vocabulary_size, tokenizer.digest)
    if theirs != ours:
        raise ValueError(
            f"architecture {architecture.name}: made for another text or tokenizer (vocabulary "
            f"{theirs[0]}, {theirs[1][:12]}) than the experiment's (vocabulary {ours[0]}, "
            f"{ours[1][:12]}); if the text changed since, use another --run directory; to train "
            f'the same layout on this text give --layout "{architecture.letters()}"'
        )


def check_layout(experiment: Experiment, layout: str | None) -> None:
    """Raise ValueError where a layout of the command line is none of the experiment's."""
    if layout is None or layout in DERIVATIONS:
        return
    model = experiment.model
    try:
        written_layout(layout, model.completed_candidates(), model.slots)
    except ValueError as error:
        message = "; ".join(str(error).splitlines())
        # One word may be meant for a rule.
        rules = f"; nor is {layout!r} a rule ({', '.join(DERIVATIONS)})" * (" " not in layout)
        raise ValueError(f"--{message}{rules}") from None


def settings_of(layout: str) -> list[str]:
    """What derive.py is to be told to choose what --layout names."""
    if layout in DERIVATIONS:
        return [f"derive.method={layout}"]
    return ["derive.method=layout", f"derive.layout={layout}"]


def find_architecture(plan: RunPlan, file: Path | None, layout: str | None) -> Architecture:
    """What a retraining trains: a JSON, a layout in letters or by rule, else the chosen one.

    The first process finds it and tells the others.

    Raises:
        ValueError: there is none, or it is damaged, of another tokenizer, or needs more tokens.
        Lost: another process of the run is gone.
    """
    if not plan.ranks.is_first:
        return Architecture.from_json(plan.ranks.broadcast_str(None), "the first process")
    if layout is not None:
        method = layout if layout in DERIVATIONS else "layout"
        architecture = derive(plan, method=method, layout=layout)
        architecture = write_architecture(architecture, plan.experiment, plan.run_dir)
    else:
        path = file or plan.run_dir / "architecture.json"
        if not path.exists():
            remedy = f"run derive.py {plan.run_dir} first ({NO_SEARCH}), or give --layout"
            raise ValueError(f"{path}: not found" + ("" if file else f"; {remedy}"))
        architecture = load_architecture(path)
        for problem in idle_clusters("slots", architecture.slots, plan.experiment.data.segment):
            raise ValueError(f"{path}: {problem}")
    plan.ranks.broadcast_str(architecture.to_json())
    return architecture


def write_architecture(
    architecture: Architecture, experiment: Experiment, run_dir: Path
) -> Architecture:
    """Write RUN/architectures/NAME.json and the experiment beside it.

    Returns:
        The architecture under the name it has in this run: where another one has the name
        already, part of the hash is added, so that no file or folder is ever taken over.

    Raises:
        ValueError: there is a file of that name, which cannot be read.
    """
    folder = run_dir / "architectures"
    path = folder / f"{architecture.name}.json"
    digest = architecture_hash(architecture)
    if path.exists() and _hash_in(path) != digest:
        name = f"{architecture.name}-{digest[:6]}"
        architecture = architecture.model_copy(update={"name": name})
        path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "experiment.yaml", dump_experiment(as_saved(experiment)))
    write_whole(path, architecture.to_json())
    return architecture


def _hash_in(path: Path) -> str:
    try:
        return architecture_hash(load_architecture(path))
    except ValueError as error:
        raise ValueError(f"{error}; remove it, and it is made again") from None


def others_left_out(run_dir: Path, config: DeriveConfig, seed: int) -> str | None:
    """A line where the run has other searches, and the layout is of the one with this seed."""
    names = [path.parent.name for path in (run_dir / "search").glob("seed-*/pi.npz")]
    numbers = [name.removeprefix("seed-") for name in names]
    seeds = sorted(int(number) for number in numbers if number.isdecimal())
    if config.method not in SEARCHED or config.searches or seeds == [seed]:
        return None
    shown = ",".join(map(str, seeds))
    return f"from search {seed} alone, of searches {shown}; all together: --seeds {shown}"


def chosen_before(run_dir: Path) -> Architecture | None:
    """The architecture that the run has chosen so far; None where none can be read."""
    path = run_dir / "architecture.json"
    try:
        return load_architecture(path) if path.exists() else None
    except ValueError:  # damaged; it is about to be replaced
        return None


def choose(derivation: Derivation, experiment: Experiment, run_dir: Path) -> Architecture:
    """Write the architecture as one of the run's and as the chosen one, and what it was best of."""
    architecture = write_architecture(derivation.architecture, experiment, run_dir)
    table = run_dir / "architectures" / f"{architecture.name}.csv"
    # What the method was: architectures/experiment.yaml is of whoever wrote there last.
    write_whole(table.with_suffix(".yaml"), dump_experiment(as_saved(experiment)))
    if derivation.considered:
        write_whole(table, considered_csv(derivation.considered))
    if derivation.trained:
        write_whole(table, trained_csv(derivation.trained))
        write_whole(table.with_name(f"{table.stem}-front.csv"), front_csv(derivation.front))
    write_whole(run_dir / "architecture.json", architecture.to_json())
    return architecture
