"""From an experiment and a method to an architecture JSON; imported by scripts and tools only."""

import hashlib
from pathlib import Path

import torch

from assembly.costs import cluster_mass, costs, layout_costs
from assembly.lengths import search_steps
from assembly.models import architecture_hash
from assembly.workbench import Workbench
from experiment import Experiment, dump_experiment
from model import (
    Architecture,
    ArchitectureCosts,
    FlopsKey,
    TokenizerIdentity,
    build_model,
    layout_letters,
    load_architecture,
    parse_layout,
)
from nas.config import DeriveConfig
from nas.derivation import DERIVATIONS, Derived, Request
from training.files import write_whole
from training.run_dir import commit, identity_hash

MOST_NAME = 60


def derive(bench: Workbench, config: DeriveConfig) -> Architecture:
    """Derive a layout by a registered method.

    Raises:
        ValueError: the method is unknown or cannot serve here.
    """
    if config.method not in DERIVATIONS:
        raise ValueError(f"method {config.method!r} is none of {', '.join(DERIVATIONS)}")
    experiment = bench.experiment
    seed = experiment.run.seed
    trajectory = bench.run_dir / "search" / f"seed-{seed}" / "pi.npz"
    derived = DERIVATIONS[config.method](
        Request(
            config=config,
            candidates=experiment.model.completed_candidates(),
            slots=experiment.model.slots,
            flops_per_token=layout_costs(bench),
            trajectory=trajectory,
            search_steps=search_steps(bench),
        )
    )
    return _architecture(bench, derived, _name(config, seed, derived))


def _name(config: DeriveConfig, search_seed: int, derived: Derived) -> str:
    """What the architecture's files and folders are called: its method and what varies it."""
    suffix = {
        "argmax": str(search_seed),
        "par": str(config.p),
        "sandwich": str(config.k),
        "random": str(config.seed),
        "layout": _short(layout_letters(derived.layout)),
    }.get(config.method)
    return config.method if suffix is None else f"{config.method}-{suffix}"


def _short(layout: str) -> str:
    """A layout as part of a file name: letters without blanks, a long one with its hash."""
    words = layout.split()
    text = ("" if all(len(word) == 1 for word in words) else "-").join(words)
    if len(text) <= MOST_NAME:
        return text
    return f"{text[: MOST_NAME - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _architecture(bench: Workbench, derived: Derived, name: str) -> Architecture:
    """The architecture of a derived layout: sizes, costs, evidence, provenance."""
    config, data = bench.experiment.model, bench.experiment.data
    bare = Architecture(
        name=name,
        d_model=config.d_model,
        slots=derived.layout,
        tie_slots=config.tie_slots,
        softmax=bench.softmax,
        vocabulary_size=bench.prepared.tokenizer.vocabulary_size,
        tokenizer=TokenizerIdentity(digest=bench.prepared.tokenizer.digest),
    )
    with torch.device("meta"):
        model = build_model(bare)
    mass = cluster_mass(bench.prepared.counts_V, bench.softmax.cutoffs)
    table = ArchitectureCosts(
        parameters=sum(p.numel() for p in model.parameters()),
        flops_per_token=costs(bench, model).total,
        key=FlopsKey(batch=data.batch, segment=data.segment, mass=mass),
    )
    return bare.model_copy(
        update={
            "costs": table,
            "evidence": derived.evidence,
            "provenance": {
                "corpus_name": data.corpus,
                **bench.inputs(),
                "search_seed": str(bench.experiment.run.seed),
                "search": identity_hash(bench.experiment.search.model_dump(mode="json")),
                "commit": commit() or "unknown",
            },
        }
    )


def check_layout(experiment: Experiment, layout: str | None) -> None:
    """Raise ValueError where a layout of the command line names what is no candidate."""
    if layout is not None and layout not in DERIVATIONS:
        try:
            parse_layout(layout, experiment.model.completed_candidates())
        except ValueError as error:
            rules = ", ".join(DERIVATIONS)
            raise ValueError(f"--{error}, nor is {layout!r} a rule ({rules})") from None


def find_architecture(bench: Workbench, file: Path | None, layout: str | None) -> Architecture:
    """What a retraining trains: a JSON, a layout in letters or by rule, else the chosen one.

    The first process finds it and tells the others.

    Raises:
        ValueError: there is none, or it is damaged or of another tokenizer.
        Lost: another process of the run is gone.
    """
    if not bench.ranks.is_first:
        return Architecture.from_json(bench.ranks.tell(None), "the first process")
    found = _find_architecture(bench, file, layout)
    bench.ranks.tell(found.to_json())
    return found


def _find_architecture(bench: Workbench, file: Path | None, layout: str | None) -> Architecture:
    if layout is not None:
        options = {"method": layout} if layout in DERIVATIONS else {"method": "layout"}
        config = bench.experiment.derive.model_copy(update={**options, "layout": layout})
        return write_architecture(bench, derive(bench, config))
    path = file or bench.run_dir / "architecture.json"
    if not path.exists():
        remedy = "" if file else f"; run derive.py {bench.run_dir} first, or give --layout"
        raise ValueError(f"{path}: not found{remedy}")
    return load_architecture(path)


def write_architecture(bench: Workbench, architecture: Architecture) -> Architecture:
    """Write RUN/architectures/NAME.json and the experiment beside it.

    Returns:
        The architecture under the name it has in this run: where another one has the name
        already, part of the hash is added, so that no file or folder is ever taken over.
    """
    folder = bench.run_dir / "architectures"
    path = folder / f"{architecture.name}.json"
    digest = architecture_hash(architecture)
    if path.exists() and architecture_hash(load_architecture(path)) != digest:
        name = f"{architecture.name}-{digest[:6]}"
        architecture = architecture.model_copy(update={"name": name})
        path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "experiment.yaml", dump_experiment(bench.experiment))
    write_whole(path, architecture.to_json())
    return architecture


def choose(bench: Workbench, architecture: Architecture) -> Architecture:
    """Write the architecture as one of the run's and as the chosen one."""
    architecture = write_architecture(bench, architecture)
    write_whole(bench.run_dir / "architecture.json", architecture.to_json())
    return architecture


def describe(architecture: Architecture) -> str:
    """Layout, confidence per slot and costs, for the screen."""
    lines = [f"layout {architecture.letters()}   ({architecture.name})"]
    evidence, costs = architecture.evidence, architecture.costs
    assert evidence is not None
    assert costs is not None
    for slot, (pi, margin) in enumerate(zip(evidence.pi, evidence.margins, strict=True)):
        shown = "  ".join(f"{label} {value:.3f}" for label, value in pi.items())
        lines.append(f"  slot {slot:>2}  {shown}  margin {margin:.3f}")
    lines.append(
        f"{costs.parameters:,} parameters, {costs.flops_per_token / 1e6:.3f} MFLOP per token"
    )
    return "\n".join(lines)
