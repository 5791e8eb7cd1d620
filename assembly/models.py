"""The SuperNet of an experiment; what an architecture is, and for which text it was made."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

import torch

from assembly.workbench import Workbench
from model import Architecture, LanguageModel


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
