"""The model that shrinks: what can stand in its places, and the text on which that is scored."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from data.batching import Batch, ContextBatches
from model import BLOCKS, Evidence, Layout, load_architecture
from model.layout import block_options, weight_options
from model.saving import Given, load_given, started
from nas.derivation.base import Derived
from nas.derivation.shrink import Parent
from nas.derivation.sub_networks import SubNetworks
from pipeline.architectures import architecture_of
from pipeline.plan import RunPlan
from pipeline.run_files import result_of_model
from training.run_dir import identity_hash, machine, source_digest
from utils.files import read_object
from utils.kept import Kept

# What a score passes through.
_SOURCES = ("data", "model", "nas/statistics", "nas/derivation/sub_networks.py")


def start_of(plan: RunPlan) -> Path:
    """The folder of the model that shrinks; ValueError where none is given."""
    folder = plan.experiment.retrain.models().get("start")
    if folder is None:
        raise ValueError("retrain.start: shrink, parent and drop_* need it; give a model folder")
    return folder


def parent_of(plan: RunPlan) -> tuple[Layout, Parent]:
    """The model of retrain.start: its blocks, and what may stay of it.

    ValueError: none is given, it does not fit the experiment, or the text is too short.
    """
    folder = start_of(plan)
    architecture = load_architecture(folder / "architecture.json")
    if architecture.tie_blocks is not None:
        raise ValueError(
            f"retrain.start: {folder}: blocks share weights (tie_blocks {architecture.tie_blocks}),"
            " so none can be dropped alone; give a model whose blocks are its own"
        )
    options = _options(plan, architecture.blocks)
    layout = tuple(plan.candidates[of_place[0]] for of_place in options)
    like = architecture_of(plan, Derived(layout, Evidence(method="parent")), architecture.name)
    # The teacher too: retrain.py would refuse it after the scores.
    given = load_given(plan.experiment.retrain.models(), like, [plan.run_dir / "model"])["start"]
    scores = sub_networks(plan, given, options)
    return layout, Parent(options, scores.distances, scores.cosines)


def sub_networks(plan: RunPlan, given: Given, options: Sequence[Sequence[int]]) -> SubNetworks:
    """Scores of what stays of a model with these options in its places."""
    slots = [[plan.candidates[k] for k in of_place] for of_place in options]
    net, batches = plan.network(slots), _batches(plan, given)
    net.load_state_dict(started(net, slots, given))
    text = hashlib.sha256(b"".join(one.target_BT.numpy().tobytes() for one in batches))
    parts = {
        "parent": given.digest,
        "candidates": [one.model_dump(mode="json") for one in plan.candidates],
        "tokens": text.hexdigest(),
        "machine": machine(plan.device),
        "sources": source_digest(_SOURCES),
    }
    kept = Kept(plan.run_dir / "shrink.jsonl", identity_hash(parts))
    net = net.to(plan.device).eval()
    return SubNetworks(net, plan.candidates, options, batches, kept)


def _batches(plan: RunPlan, given: Given) -> list[Batch]:
    """The segment that fills memories, and those that are scored."""
    data, wanted = plan.experiment.data, plan.experiment.derive.shrink.tokens
    tokens = plan.prepared.tokens["train"]
    batches = ContextBatches(tokens, batch=data.batch, segment=data.segment)
    count = 1 + max(1, round(wanted / (batches.streams * batches.width)))
    if count > batches.per_epoch:
        raise ValueError(
            f"derive.shrink.tokens: {wanted} and a segment before them are more than the training "
            f"text has in {batches.per_epoch} segments of {batches.streams} streams; give fewer"
        )
    path = result_of_model(given.folder)
    start = (read_object(path)["steps"] if path is not None else 0) % batches.per_epoch
    if start + count > batches.per_epoch:
        start = 0  # read longest ago; a stream's end and its beginning are no neighbours
    return [batches.batch(start + number) for number in range(count)]


def _options(plan: RunPlan, blocks: Layout) -> list[tuple[int, ...]]:
    """Of each place its own block, candidates that take its weights, dear ones first, nothing."""
    candidates, found = plan.candidates, list[tuple[int, ...]]()
    nothing = next((k for k, one in enumerate(candidates) if BLOCKS[one.kind].adds_nothing), None)
    if nothing is None:
        raise ValueError("model.candidates: to drop blocks, add identity")
    if (has := len(blocks)) != (wants := len(plan.slots)):
        raise ValueError(f"retrain.start: has {has} blocks, model.n_blocks {wants}; give as many")
    options_C = [block_options(one) for one in candidates]
    weights_C = [weight_options(one) for one in candidates]
    for place, block in enumerate(blocks):
        if (options := block_options(block)) not in options_C:
            raise ValueError(
                f"retrain.start: block {place} ({options}) is no candidate of the experiment; give "
                "model.candidates those of its blocks"
            )
        own = options_C.index(options)
        alike = (k for k, weights in enumerate(weights_C) if weights == weights_C[own])
        others = [k for k in alike if options_C[k] != options]
        others.sort(key=lambda k: -plan.costs.by_label[candidates[k].label])
        found.append((own,) if own == nothing else (own, *others, nothing))
    return found
