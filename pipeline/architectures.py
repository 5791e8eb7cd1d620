"""A layout as an architecture: its costs and origin, its hashes, its file in a run."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

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
from nas.derivation import TRAINED
from nas.derivation.base import Derived
from pipeline.experiment import Experiment, dump_experiment
from pipeline.plan import RunPlan
from training.run_dir import commit, identity_hash
from utils.files import write_whole
from utils.text import NO_CONTEXT


def architecture_of(
    plan: RunPlan,
    derived: Derived,
    name: str,
    searches: Sequence[int] = (),
    times: tuple[TimedCost, ...] = (),
) -> Architecture:
    """The architecture of a derived layout, with its costs, and the seeds of searches it is of."""
    data, evidence = plan.experiment.data, derived.evidence
    with torch.device("meta"):
        model = plan.network([[candidate] for candidate in derived.layout])
    caveats = (*blind_caveats(derived.layout, model.options), *evidence.caveats)
    digest = identity_hash(plan.experiment.search.identity())
    of_search = {"search_seed": ", ".join(map(str, searches)), "search": digest}
    return Architecture(
        name=name,
        blocks=derived.layout,
        **plan.sizes,
        tokenizer=TokenizerIdentity(digest=plan.prepared.tokenizer.digest),
        costs=ArchitectureCosts(
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            flops_per_token=plan.flops_per_token(model),
            key=FlopsKey(
                batch=data.batch,
                segment=data.segment,
                mass=plan.cluster_mass(model.softmax.bounds[:-1]),
            ),
            times=times,
        ),
        evidence=evidence.model_copy(update={"caveats": caveats}),
        provenance={
            "corpus_name": data.corpus,
            **plan.inputs(),
            **(of_search if searches else {}),
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
    return identity_hash(architecture.model_dump(mode="json", include=architecture.built_of))


def network_hash(architecture: Architecture) -> str:
    """Hash of the network: `architecture_hash` where what adds nothing and labels do not count."""
    rest = architecture.built_of - {"blocks", "tie_blocks"}
    sizes = architecture.model_dump(mode="json", include=rest)
    return identity_hash(sizes | asdict(architecture.network))


def chosen_by_trainings(architecture: Architecture) -> bool:
    """Whether trainings of this and other layouts chose it."""
    evidence = architecture.evidence
    return evidence is not None and evidence.method.partition(":")[0] in TRAINED


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
