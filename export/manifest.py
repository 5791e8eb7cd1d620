"""A graph checked beside the model, and manifest.json, which says what it reads and gives.

B batch   T segment length   V vocabulary
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from export.graph import SEEN, GraphModel, Memories
from export.source import Source
from model.saving import tensors_digest
from utils.files import write_whole

Run = Callable[[Tensor, Memories], tuple[Tensor, Memories]]
Zeros = Callable[[int], Memories]

MOST_NATS = 1e-4
# Streams, and the lengths of the segments that they read one after the other.
CASES = ((1, (5, 17, 1)), (3, (17, 1, 5)))
DRAWS = 3

FILE = "manifest.json"
IDS, LOG_PROBS, NEXT = "ids", "log_probs", "next_"
_MEANING = {
    SEEN: "tokens that the stream has read",
    "state": "what the block keeps of earlier tokens",
    "before": "the block's input before the segment (token_shift)",
}


def check_program(run: Run, source: Source, zeros: Zeros) -> float:
    """How far a graph is from the model at most, over the segments of `CASES`.

    ValueError: it is further than `MOST_NATS` for each of several draws of ids. With one draw alone
    a choice, of an expert or a cluster, may fall otherwise where two are equal but for rounding.
    """
    differences = []
    for draw in range(DRAWS):
        differences.append(_difference(run, source, zeros, draw))
        if differences[-1] <= MOST_NATS:
            return differences[-1]
    raise ValueError(
        f"{source.folder}: the exported graph differs from the model by {min(differences):.2g} "
        f"nats, and at most {MOST_NATS:g} is rounding; nothing was written"
    )


@torch.no_grad()
def _difference(run: Run, source: Source, zeros: Zeros, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    words, model, worst = source.architecture.vocabulary_size, source.model, 0.0
    if model.softmax.head.dtype != torch.float32:
        model = copy.deepcopy(model).float()
    for batch, lengths in CASES:
        memories, state = zeros(batch), model.initial_state(batch, cached=True)
        for length in lengths:
            ids_BT = torch.randint(words, (batch, length), generator=generator)
            log_prob_BTV, memories = run(ids_BT, memories)
            h_BTD, state, _ = model(ids_BT, state)
            difference = (log_prob_BTV - model.log_prob(h_BTD)).abs().max()
            # A nan is further away than any number.
            worst = max(worst, float(difference.nan_to_num(nan=torch.inf)))
    return worst


def finished(run: Run, source: Source, graph: GraphModel, path: Path) -> list[str]:
    """Check a graph's file, and write tokenizer and manifest beside it; returns lines to print."""
    difference = check_program(run, source, graph.zeros)
    source.tokenizer.save(path.parent)
    own, words = source.architecture, source.architecture.vocabulary_size
    memories = [
        {
            "input": name,
            "output": NEXT + name,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": ["batch", *tensor.shape[1:]],
            "meaning": _MEANING[name.split("_")[0]],
        }
        for name, tensor in graph.zeros(1).items()
    ]
    content = {
        "version": 1,
        "model": {"name": own.name, "layout": own.letters()},
        "file": path.name,
        "inputs": [{"name": IDS, "dtype": "int64", "shape": ["batch", "length"]}],
        "outputs": [{"name": LOG_PROBS, "dtype": "float32", "shape": ["batch", "length", words]}],
        "memories": memories,
        "zero_state": "all memories are 0 for streams that start",
        "vocabulary": {
            "size": words,
            "tokenizer_digest": own.tokenizer.digest,
            "kind": source.tokenizer.kind,
            "doc_id": source.tokenizer.doc_id,
        },
        "checked": difference,
        "provenance": {**own.provenance, "weights": tensors_digest(source.model.state_dict())},
    }
    write_whole(path.with_name(FILE), json.dumps(content, indent=1, allow_nan=False) + "\n")
    return [
        f"{own.name}, layout {own.letters()}: ids and {len(memories)} memories in and out",
        f"differs from the model by at most {difference:.1e} nats",
        f"{path.name}: {path.stat().st_size / 1e6:,.2f} MB",
    ]
