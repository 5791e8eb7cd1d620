"""From an experiment and a method to an architecture JSON, which a run may choose."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

from model import Architecture, Evidence, TimedCost, reads_context
from model.layout import layout_letters, legend
from nas.costs.config import BudgetConfig
from nas.derivation import OF_MODEL, RULES, TRAINED, method_of, reference_layout
from nas.derivation.base import Considered, Derived, Train
from nas.derivation.config import DeriveConfig
from nas.derivation.rules import sandwich_ends
from nas.derivation.training import Row
from nas.derivation.within_budget import BudgetedDerivation
from pipeline.architectures import architecture_of, write_architecture
from pipeline.costs import cost_model
from pipeline.experiment import Experiment
from pipeline.layout_scores import LayoutTrainings, SupernetScores, with_gap
from pipeline.plan import RunPlan
from pipeline.run_files import layout_name, short_text
from pipeline.sub_networks import parent_of
from pipeline.summary import layout_caveats
from utils.files import csv_of, write_whole
from utils.text import aligned, layout_title, wrapped

_SHOWN, _LAYOUT = 10, 24


@dataclass(frozen=True)
class Derivation:
    """An architecture, and the derived layout with what was scored or trained to choose it."""

    architecture: Architecture
    derived: Derived


def derive(plan: RunPlan, **options: Any) -> Architecture:
    """The architecture of `derivation` with other options of `derive`.

    A rule has one layout, whatever a budget allows, so it has none; `random` draws within it.
    """
    config = plan.experiment.derive.model_copy(update=options)
    if config.method in RULES and config.method != "random":
        free = {"budget": BudgetConfig(), "fill": None, "least_context": 0}
        config = config.model_copy(update=free)
    return derivation(plan, config).architecture


def derivation(
    plan: RunPlan, config: DeriveConfig, train: Train | None = None, workers: int = 1
) -> Derivation:
    """Derive a layout by a registered method; from a search with its discretisation gap.

    `train` trains what a method asks for; None: so many workers as retrain.py does.

    Raises:
        ValueError: the method cannot serve here, a training failed, or no layout keeps the budget.
        Stopped: a signal came while layouts were trained; everything is saved.
    """
    seeds, parent = config.searches or [plan.seed], None
    scores = SupernetScores(plan, seeds, config.score_tokens)
    if config.method in OF_MODEL:
        whole, parent = parent_of(plan)
        letters = config.reference or layout_letters(whole)
        config = config.model_copy(update={"reference": letters})
    searches = _searches_read(plan, config, seeds)
    request = plan.request(config, searches)
    trainings = LayoutTrainings(plan, workers)
    request = replace(request, train=train or trainings, foresee=trainings.foresee)
    request = replace(request, score=scores.score, parent=parent)
    budgeted, times = None, tuple[TimedCost, ...]()
    if config.budget.amounts:
        costs, reference = cost_model(plan), reference_layout(request)
        budget = costs.budget(config.budget.amounts, reference, config.reference_name)
        budgeted = BudgetedDerivation(request, costs, budget)
        derived, times = budgeted.best()
    else:
        derived = method_of(config.method)(request)
    count = sum(map(reads_context, derived.layout))
    if count < config.least_context and config.method != "layout":
        raise ValueError(
            f"derive.least_context: {config.method} has {count} blocks that read earlier tokens "
            f"({layout_letters(derived.layout)}), at least {config.least_context} were asked for; "
            "give less, or another method"
        )
    if train is None:  # by the names of the trainings' folders
        rows = [row | {"seed": trainings.seed(row["seed"])} for row in derived.trained]
        derived = replace(derived, trained=rows)
    derived = derived.marked()
    if config.gap and derived.evidence.pi:
        derived = with_gap(scores, request, derived)
    name, words, caveats = _name(config, seeds, derived), None, derived.evidence.caveats
    if derived.evidence.pi:
        caveats += layout_caveats(derived.evidence, [plan.search_folder(seed) for seed in seeds])
    if budgeted is not None:
        words = budgeted.words(None if config.fill else derived.layout)
        if config.fill and (wider := budgeted.filled(derived.layout)) is not None:
            layout, times, how_wide = wider
            name, words = f"{name}-filled", f"{words}; {how_wide} after the choice of the layout"
            derived = replace(derived, layout=layout)
    evidence = derived.evidence.model_copy(update={"budget": words, "caveats": caveats})
    derived = replace(derived, evidence=evidence)
    return Derivation(architecture_of(plan, derived, name, searches, times), derived)


def _searches_read(plan: RunPlan, config: DeriveConfig, seeds: Sequence[int]) -> Sequence[int]:
    if config.method in RULES | OF_MODEL:
        return []
    if config.method in TRAINED and not config.searches:  # it serves without one too
        return [seed for seed in seeds if (plan.searched_folder(seed) / "pi.npz").exists()]
    return seeds


def _name(config: DeriveConfig, seeds: Sequence[int], derived: Derived) -> str:
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
    return "-".join(filter(None, [config.method, suffix, budget.replace(" ", "")]))


def choose(derivation: Derivation, experiment: Experiment, run_dir: Path) -> Architecture:
    """Write the architecture as one of the run's and as the chosen one, and what it was best of."""
    derived = derivation.derived
    architecture = write_architecture(derivation.architecture, experiment, run_dir)
    tables = {
        "": considered_rows(derived.considered) or derived.trained,
        "-front": derived.front,
        "-subsets": derived.subsets,
        "-blocks": derived.prices,
    }
    for end, rows in tables.items():
        if rows:
            path = run_dir / "architectures" / f"{architecture.name}{end}.csv"
            write_whole(path, csv_of(rows, list(rows[0])))
    write_whole(run_dir / "architecture.json", architecture.to_json())
    return architecture


def considered_rows(considered: Sequence[Considered]) -> list[Row]:
    """All scored layouts in the order in which they were scored; differences paired by text."""
    if not considered:
        return []
    best = min((scored.score for scored in considered), key=lambda score: score.nats_per_token)
    rows = list[Row]()
    for scored in considered:
        less, error = scored.score.less(best)
        rows.append(
            {
                "layout": layout_letters(scored.layout),
                "log_pi": round(scored.log_pi, 6),
                "nats_per_token": round(scored.score.nats_per_token, 6),
                "standard_error": round(scored.score.standard_error, 6),
                "above_best": round(less, 6),
                "above_best_error": round(error, 6),
                "flops_per_token": scored.flops_per_token,
            }
        )
    return rows


def table_text(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Columns of a table for the screen; a long layout continues in the lines under its row."""

    def shown(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return "" if isnan(value) else f"{value:.4f}" if abs(value) < 1000 else f"{value:,.0f}"

    names = [column.replace("_", " ") for column in columns]
    cells = [names, *([shown(row.get(name, "")) for name in columns] for row in rows)]
    place = columns.index("layout") if "layout" in columns else -1
    return "\n".join(aligned(wrapped(cells, place, _LAYOUT), place + 1))


def weighed_text(derived: Derived) -> str:
    """What was trained for a layout, or the best that was scored, for the screen; else nothing."""
    if derived.considered:
        rows = sorted(considered_rows(derived.considered), key=lambda row: row["nats_per_token"])
        columns = ["layout", "log_pi", "nats_per_token", "above_best", "above_best_error"]
        return table_text(rows[:_SHOWN], columns)
    if derived.subsets:
        return table_text(derived.subsets[:_SHOWN], list(derived.subsets[0]))
    rows = sorted(derived.trained, key=lambda row: float(row["expected_nats"]))
    columns = ["layout", "length", "seed", "valid_nats", "expected_nats", "expected_sd", "rule"]
    expected = "expected: at full length, by all of these trainings; sd: its standard deviation"
    return f"{table_text(rows, columns)}\n{expected}" if rows else ""


def describe(architecture: Architecture) -> str:
    """Layout, costs, gap and caveats, for the screen; the report has pi and agreement too."""
    evidence, blocks = architecture.evidence or Evidence(method="unknown"), architecture.blocks
    costs, letters = architecture.costs, architecture.letters()
    title = layout_title([block.kind for block in blocks], architecture.name)
    lines = [f"layout {letters} ({legend(blocks)}): {title}, named {architecture.name}"]
    if costs is not None:
        flops = f"{costs.flops_per_token:,.0f} FLOPs/token (forward pass)"
        lines.append(f"{costs.parameters:,} parameters, {flops}")
        for time in costs.times:
            share, most = (ms / time.reference_ms for ms in (time.ms, time.most_ms))
            unit = "ms per pass" if time.name == "throughput" else "ms"
            lines.append(
                f"{time.name} {time.ms:.4g} {unit}, {share:.3f}x of {time.reference} (at most "
                f"{most:.3f}x), measured in turn"
            )
    if evidence.budget is not None:
        lines.append(f"budget: {evidence.budget}")
    if (gap := evidence.gap) is not None:
        lines.append(
            f"discretisation gap: {gap.ratio - 1:+.1%} perplexity (standard error over the text "
            f"{gap.ratio_error:.1%}) from the mixture of candidates by pi to this layout alone, "
            f"with the SuperNet's weights on {gap.tokens:,} validation tokens"
        )
    return "\n".join([*lines, *evidence.caveats])
