"""Architectures told apart by hashes and checked against a text; models timed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from data import Tokenizer
from model import Architecture, LanguageModel
from nas.costs.latency import Latencies, measure_latency
from pipeline.context import RunPlan, say


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


def time_models(plan: RunPlan, models: Mapping[str, LanguageModel]) -> Latencies:
    """Time models in turn, at the segment and the streams that `compare` names."""
    say(f"measuring the latency of {len(models)} models in turn")
    compare = plan.experiment.compare
    batch, segment = compare.latency_batch, plan.experiment.data.segment
    tokens = np.resize(plan.prepared.tokens["valid"], batch * segment).astype(np.int64)
    return measure_latency(
        {name: model.to(plan.device) for name, model in models.items()},
        ids_BT=torch.from_numpy(tokens.reshape(batch, segment)),
        repeats=compare.latency_repeats,
        device=plan.device,
    )
