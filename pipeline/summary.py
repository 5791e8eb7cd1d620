"""What a phase says before its first step, which train.log keeps, and what it draws at its end."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from data import ContextBatches, Prepared, Tokenizer
from data.corpora.base import LONG
from model.config import SoftmaxConfig
from utils.files import read_object
from utils.validation import Section

if TYPE_CHECKING:
    from model import Agreement, Evidence, LanguageModel
    from pipeline.plan import RunPlan

# With fewer held-out tokens the error of a mean is larger than what layouts differ by.
LEAST_TOKENS = 10_000
# About the deviation of one token's nats.
TOKEN_DEVIATION = 3.0
# A larger part of a split that stands in the training text is worth a warning.
MOST_OVERLAP = 0.2
# A warning about a search is composed once, at its end or with a layout: the screen shows it, and
# the report boxes it, from this file or the evidence.
CAVEATS = "caveats.json"
ONE_SEARCH = "warning: one search says little about the next: try other seeds (--seeds 0,1,2)"
# One-hot over soft perplexity above which a layout read off pi is warned of, and the margin of pi
# below which a slot counts as open.
_MOST_RATIO, _OPEN = 1.03, 0.1
# Probability of so much agreement by chance above which nothing follows from it.
_MOST_CHANCE = 0.05


def text_summary(plan: "RunPlan") -> str:
    """Text, streams, seed and machine, with warnings."""
    data, prepared, run = plan.experiment.data, plan.prepared, plan.experiment.run
    batches = plan.training_batches()
    counts = ", ".join(f"{name} {len(ids):,}" for name, ids in prepared.tokens.items())
    shares = prepared.notes["lines_found_in_train"]
    overlap = ", ".join(
        f"{share['found']} of {share['lines']} in {split}"
        if share["lines"]
        else f"no line of {split} is long enough to tell"
        for split, share in shares.items()
    )
    steps = {"micro_batches", "attention", "compile", "recompute"}
    unusual = run.model_dump(include=steps, exclude_defaults=True)
    lines = [
        f"text: {data.corpus}; tokens: {counts}; vocabulary {prepared.tokenizer.vocabulary_size:,}",
        tokenizer_line(prepared.tokenizer, prepared.notes),
        f"  lines of {LONG}+ characters that also occur in the training text: {overlap}",
        f"each step: {data.batch} streams of {batches.width} tokens; seed {run.seed}, "
        f"{plan.device}, {run.precision}, threads: {torch.get_num_threads()}"
        + (f"; shared by {plan.ranks.world} processes" if plan.ranks.world > 1 else "")
        + ("; every epoch begins at another offset" if data.random_offset else "")
        + "".join(f"; {name} {value}" for name, value in unusual.items()),
    ]
    return "\n".join([*lines, *text_warnings(prepared), *plan.experiment.warnings()])


def passes_line(steps: int, batches: ContextBatches) -> str:
    """How often so many steps read the training text."""
    return f"{steps:,} steps: {steps / batches.per_epoch:.3g} passes over the training text"


def tokenizer_line(tokenizer: Tokenizer, notes: Mapping[str, Any]) -> str:
    """Which tokenizer it is, what it loses, and how much of the text it does not know."""
    line = f"tokenizer: {tokenizer.kind}, "
    if not tokenizer.losses:
        return line + "lossless"
    line += f"lossy: {'; '.join(tokenizer.losses)}; no bits per byte, no word perplexity"
    if tokenizer.unknown_id is not None:
        unknown, tokens = notes["unknown"], notes["tokens"]
        shares = ", ".join(f"{split} {unknown[split] / tokens[split]:.2%}" for split in unknown)
        line += f"; share of <unk> tokens: {shares}"
    return line


def text_warnings(prepared: Prepared) -> list[str]:
    """What is allowed but seldom meant, and makes figures say less than they seem to."""
    lines = [
        f"warning: {share['found']} of {share['lines']} long lines of {split} also occur in "
        "the training text: its perplexity says little about new text"
        for split, share in prepared.notes["lines_found_in_train"].items()
        if share["found"] > MOST_OVERLAP * share["lines"]
    ]
    lines += [
        f"warning: {split} has {len(ids):,} tokens: the standard error of its loss is about "
        f"{TOKEN_DEVIATION / math.sqrt(len(ids)):.2f} nats/token, and layouts may differ by less"
        for split, ids in prepared.tokens.items()
        if split != "train" and len(ids) < LEAST_TOKENS
    ]
    return lines


def agreement_caveats(agreement: "Agreement") -> list[str]:
    """Kappa of several searches with its interval, and a warning where chance may explain it."""
    searches = f"agreement of {len(agreement.searches)} searches"
    if agreement.kappa is None:
        return [f"{searches}: all chose one candidate in every block; no kappa"]
    interval = "no interval (too few blocks, or too few that differ)"
    if agreement.interval is not None:
        low, high = agreement.interval
        interval = f"95% interval [{low:.3f}, {high:.3f}] over {len(agreement.blocks)} blocks"
    line = f"{searches}: kappa {agreement.kappa:.3f} (0 by chance, 1 always), {interval}"
    chance = agreement.p_by_chance
    if chance is not None:
        line += f"; random orders of the same choices agree as much with p = {chance:.4f}"
    lines = [line]
    if chance is not None and chance > _MOST_CHANCE:
        lines.append(
            f"warning: no agreement beyond chance is shown (p = {chance:.2f}, above "
            f"{_MOST_CHANCE}): another search may choose another layout. Search for more steps or "
            "with more seeds, and compare the layout with baselines (compare.py)"
        )
    return lines


def gap_caveats(evidence: "Evidence") -> list[str]:
    """A warning where a layout read off pi lies far from pi's mixture."""
    gap = evidence.gap
    # One that was chosen by its score is no reading of pi that could be wrong.
    if gap is None or evidence.inherited is not None or gap.ratio <= _MOST_RATIO:
        return []
    numbers = [str(slot) for slot, margin in enumerate(evidence.margins) if margin < _OPEN]
    where = f"; undecided blocks (margin of pi below {_OPEN}): {', '.join(numbers)}"
    return [
        f"warning: this layout has {gap.ratio - 1:.1%} more perplexity than pi's mixture (more "
        f"than {_MOST_RATIO - 1:.0%}){where if numbers else ''}. Derive another by --method top_k, "
        "which scores the likeliest layouts, and retrain both"
    ]


def layout_caveats(evidence: "Evidence", searches: Sequence[Path]) -> tuple[str, ...]:
    """What goes with a layout derived from searches, by their folders."""
    each = {folder.name: read_object(folder / CAVEATS)["caveats"] for folder in searches}
    # What all say, as of the text, is said once.
    of_all = set.intersection(*map(set, each.values())) if each else set()
    # First what the first screen of a report, which shows three, must not lack.
    lines = [] if evidence.agreement is None else agreement_caveats(evidence.agreement)
    lines += [line for line in next(iter(each.values()), ()) if line in of_all]
    lines += [f"{name}: {line}" for name, own in each.items() for line in own if line not in of_all]
    if len(searches) == 1:
        lines.append(ONE_SEARCH)
    return (*lines, *gap_caveats(evidence))


def softmax_line(plan: "RunPlan", softmax: SoftmaxConfig) -> str:
    """The cutoffs, and what the head holds of the training tokens."""
    if not softmax.cutoffs:
        return "  softmax: plain"
    mass = plan.cluster_mass(softmax.cutoffs)
    cutoffs = f"  softmax: cutoffs {list(softmax.cutoffs)}"
    return f"{cutoffs}, {mass[0]:.1%} of the training tokens in the head"


def settings_line(section: str, config: Section) -> str:
    """What the experiment sets in one of its sections; experiment.yaml has the defaults too."""
    settings = json.dumps(config.model_dump(mode="json", exclude_defaults=True))
    return f"  {section}: {settings}".replace('"', "")


def model_lines(model: "LanguageModel", layer_dropout: float = 0.0) -> list[str]:
    """Options of the whole model that are not at their defaults, and weights that are shared."""
    given = model.options.changed() | ({"layer_dropout": layer_dropout} if layer_dropout else {})
    words = ", ".join(name if value is True else f"{name} {value}" for name, value in given.items())
    lines = [f"  options: {words}"] if words else []
    if len(model.slots) < (slots := len(model.tied.own)):
        lines.append(f"  tied: {slots} blocks share the weights of {len(model.slots)}")
    return lines


def parameter_count(model: torch.nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def show_report(plan: "RunPlan") -> None:
    """Write RUN/report.html from the run's files and name it, unless run.figures is false."""
    if plan.experiment.run.figures:
        from report.page import write_report  # imports matplotlib

        print(f"report: {write_report(plan.run_dir)}")
