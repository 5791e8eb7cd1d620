"""A model of an experiment, and how many steps a length in epochs is."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import torch

from data import ContextBatches, TokenArray
from model import Architecture, LanguageModel
from nas.config import DEFAULT_SHARE, check_schedules
from pipeline.context import Workbench
from training.config import steps_in
from training.optim import Stages, stages_of


def build_supernet(bench: Workbench) -> LanguageModel:
    """The language model in which every slot holds all candidates."""
    config = bench.experiment.model
    torch.manual_seed(bench.experiment.run.seed)
    return language_model(bench, [config.completed_candidates()] * config.slots)


def language_model(bench: Workbench, slots: list[tuple[Any, ...]]) -> LanguageModel:
    """A network of the experiment's sizes with these candidates in its slots."""
    config = bench.experiment.model
    return LanguageModel(
        slots,
        d_model=config.d_model,
        vocabulary_size=bench.prepared.tokenizer.vocabulary_size,
        softmax=bench.softmax,
        dropout=config.dropouts(),
        tie_slots=config.tie_slots,
    ).to(bench.device)


def architecture_hash(architecture: Architecture) -> str:
    """Hash of what is built; evidence and provenance do not count."""
    core = architecture.model_dump(mode="json", include=architecture.built_of)
    return hashlib.sha256(json.dumps(core, sort_keys=True).encode()).hexdigest()


def network_hash(architecture: Architecture) -> str:
    """Hash of the network: `architecture_hash` where what adds nothing and labels do not count."""
    rest = architecture.built_of - {"slots", "tie_slots"}
    core = architecture.model_dump(mode="json", include=rest) | asdict(architecture.network)
    return hashlib.sha256(json.dumps(core, sort_keys=True).encode()).hexdigest()


def check_tokenizer(bench: Workbench, architecture: Architecture) -> None:
    """Raise ValueError where an architecture was derived for another tokenizer."""
    tokenizer = bench.prepared.tokenizer
    theirs = (architecture.vocabulary_size, architecture.tokenizer.digest)
    ours = (tokenizer.vocabulary_size, tokenizer.digest)
    if theirs != ours:
        raise ValueError(
            f"architecture {architecture.name}: made for another text or tokenizer (vocabulary "
            f"{theirs[0]}, {theirs[1][:12]}) than the experiment's (vocabulary {ours[0]}, "
            f"{ours[1][:12]}); if the text changed since, use another --run directory; to train "
            f'the same layout on this text give --layout "{architecture.letters()}"'
        )


@dataclass(frozen=True)
class SearchText:
    """The training text of a search: the weights' batches, and alpha's own where it has some."""

    weights: ContextBatches
    alpha: ContextBatches | None


def search_text(bench: Workbench) -> SearchText:
    """The batches of a search; with `split` alpha has the end of the text for itself.

    Raises:
        ValueError: the text is too short for the streams.
    """
    tokens = bench.prepared.tokens["train"]
    if bench.experiment.search.alpha.data != "split":
        return SearchText(bench.training_batches(tokens), None)
    cut = _alphas_first_token(bench, tokens)
    return SearchText(bench.training_batches(tokens[:cut]), bench.training_batches(tokens[cut:]))


def _alphas_first_token(bench: Workbench, tokens: TokenArray) -> int:
    share = bench.experiment.search.alpha.share or DEFAULT_SHARE
    cut = round(len(tokens) * (1 - share))
    least = bench.experiment.data.batch + 1
    if min(cut, len(tokens) - cut) < least:
        raise ValueError(
            f"search.alpha.share: {share} of {len(tokens)} training tokens leaves {cut} to "
            f"the weights and {len(tokens) - cut} to alpha; {least} are needed on each side"
        )
    return cut


def search_steps(bench: Workbench) -> int:
    """Steps of the weights.

    Raises:
        ValueError: the schedules do not fit into so few steps.
    """
    config = bench.experiment.search
    steps = steps_in(config.steps, config.epochs, search_text(bench).weights.per_epoch)
    try:
        check_schedules(config, steps)
    except ValueError as error:
        raise ValueError(f"search.{error}") from None
    return steps


def retrain_stages(bench: Workbench) -> Stages:
    """The stages of a retraining.

    Raises:
        ValueError: the warm-up does not fit into so few steps.
    """
    try:
        return stages_of(bench.experiment.retrain, bench.training_batches().per_epoch)
    except ValueError as error:
        raise ValueError(f"retrain.{error}") from None
