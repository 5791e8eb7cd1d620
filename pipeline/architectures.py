"""The architectures of a run: made of layouts, told apart by hashes, found, written and chosen."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from data import Tokenizer
from model import (
    Architecture,
    ArchitectureCosts,
    FlopsKey,
    Layout,
    ModelOptions,
    TimedCost,
    TokenizerIdentity,
    load_architecture,
    reads_context,
)
from nas.derivation import DERIVATIONS
from nas.derivation.base import Derived
from nas.derivation.rules import written_layout
from pipeline.experiment import Experiment, dump_experiment, idle_clusters
from pipeline.plan import RunPlan
from training.run_dir import commit, identity_hash
from utils.files import write_whole
from utils.text import NO_CONTEXT

# What run derive.py first may need.
NO_SEARCH = "--method layout, or of a rule, needs no search"


def architecture_of(
    plan: RunPlan,
    derived: Derived,
    name: str,
    seeds: Sequence[int] = (),
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
            parameters=sum(parameter.numel() for parameter in model.parameters()),
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


def blind_caveats(layout: Layout, options: ModelOptions) -> tuple[str, ...]:
    """A warning of a layout none of whose blocks reads earlier tokens."""
    if any(map(reads_context, layout)):
        return ()
    few = " and the few before it that token_shift brings" if options.token_shift else ""
    return (
        f"warning: {NO_CONTEXT}: it predicts from the current token alone{few}, as a table of "
        "pairs of words does, and is no Transformer",
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
        from pipeline.derive import derive

        method = layout if layout in DERIVATIONS else "layout"
        architecture = derive(plan, method=method, layout=layout)
        architecture = write_architecture(architecture, plan.experiment, plan.run_dir)
    else:
        path = file or plan.run_dir / "architecture.json"
        architecture = load_architecture(path) if file else chosen_architecture(plan.run_dir)
        for problem in idle_clusters("slots", architecture.slots, plan.experiment.data.segment):
            raise ValueError(f"{path}: {problem}")
    plan.ranks.broadcast_str(architecture.to_json())
    return architecture


def chosen_architecture(run_dir: Path) -> Architecture:
    """The architecture that derive.py chose; ValueError where there is none."""
    path = run_dir / "architecture.json"
    if not path.exists():
        raise ValueError(f"{path}: not found; run derive.py {run_dir} first ({NO_SEARCH})")
    return load_architecture(path)


def write_architecture(
    architecture: Architecture, experiment: Experiment, run_dir: Path
) -> Architecture:
    """Write RUN/architectures/NAME.json and the experiment beside it.

    Returns:
        The architecture under the name it has in this run: where another one has the name
        already, part of the hash is added, so that no file or folder is ever taken over.
    """
    folder = run_dir / "architectures"
    path, digest = folder / f"{architecture.name}.json", architecture_hash(architecture)
    if path.exists() and architecture_hash(load_architecture(path)) != digest:
        name = f"{architecture.name}-{digest[:6]}"
        architecture = architecture.model_copy(update={"name": name})
        path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "experiment.yaml", dump_experiment(experiment))
    write_whole(path, architecture.to_json())
    return architecture
