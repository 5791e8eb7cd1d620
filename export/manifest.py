"""manifest.json beside a graph: its inputs and outputs, whose ids it reads, where it comes from."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from export.graph import SEEN, GraphModel
from export.source import Source
from model.saving import tensors_digest
from utils.files import write_whole

FILE = "manifest.json"
IDS, LOG_PROBS, NEXT = "ids", "log_probs", "next_"
_MEANING = {
    SEEN: "tokens that the stream has read",
    "state": "what the slot's block keeps of earlier tokens",
    "before": "the slot's input before the segment (token_shift)",
}


def write_manifest(
    folder: Path,
    source: Source,
    graph: GraphModel,
    form: str,
    files: Sequence[str],
    measured: Mapping[str, Any],
) -> str:
    """Write the tokenizer and the manifest of the files in a folder; returns a line that says what.

    `form` is the exporter's name, `measured` what was found of the graph.
    """
    source.tokenizer.save(folder)
    own, memories = source.architecture, memories_of(graph)
    tokenizer = {"kind": source.tokenizer.kind, "doc_id": source.tokenizer.doc_id}
    content = {
        "version": 1,
        "form": form,
        "model": {"name": own.name, "layout": own.letters()},
        "files": {name: _file(folder / name) for name in files},
        "inputs": [{"name": IDS, "dtype": "int64", "shape": ["batch", "length"]}],
        "outputs": [
            {
                "name": LOG_PROBS,
                "dtype": "float32",
                "shape": ["batch", "length", own.vocabulary_size],
            }
        ],
        "memories": memories,
        "zero_state": "all memories are 0 for streams that start",
        "vocabulary": {
            "size": own.vocabulary_size,
            "tokenizer_digest": own.tokenizer.digest,
            **tokenizer,
        },
        **measured,
        "provenance": {
            **own.provenance,
            "weights": tensors_digest(source.model.state_dict()),
        },
    }
    write_whole(folder / FILE, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return f"{own.name}, layout {own.letters()}: ids and {len(memories)} memories in and out"


def memories_of(graph: GraphModel) -> list[dict[str, Any]]:
    """Name, next name, dtype and shape of all that streams carry, in the graph's order."""
    return [
        {
            "input": name,
            "output": NEXT + name,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": ["batch", *tensor.shape[1:]],
            "meaning": _MEANING[name.split("_")[0]],
        }
        for name, tensor in graph.zeros(1).items()
    ]


def _file(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}
