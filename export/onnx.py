"""The graph of a model as ONNX, run once beside the model before anybody gets it.

B batch   T segment length   V vocabulary
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from torch import Tensor
from torch.export import ExportedProgram

from export.check import check_program, nats_per_token, tokens_of
from export.graph import GraphModel, Memories
from export.manifest import IDS, LOG_PROBS, NEXT, write_manifest
from export.quantise import quantised
from export.source import Source
from export.torch_export import exported, graph_of, quiet

FILE, INT8_FILE = "model.onnx", "model.int8.onnx"
# A file of protocol buffers cannot be larger.
MOST_BYTES = 2**31 - 2**20


def write_folder(
    source: Source, folder: Path, *, int8: bool = False, data: Sequence[Path] = ()
) -> list[str]:
    """Write the graph, the tokenizer and a manifest into an empty folder; returns lines to print.

    With `int8` there is a second graph of smaller weights; `data` are texts that both are measured
    on.

    Raises:
        ValueError: a kind of block cannot be carried, the model is too large for a file, the graph
            does not compute the model, or a text is none.
    """
    if int8 and not data:
        raise ValueError("--int8: what it costs is measured on a text; give one with --data FILE")
    tokens = tokens_of(data, source.tokenizer) if data else None
    graph = graph_of(source)
    check_size(graph, source.folder)
    model, slot_nodes = converted(graph, exported(graph))
    runs = {FILE: _written(folder / FILE, model)}
    difference = check_program(runs[FILE], source, graph.zeros)
    if int8:
        with quiet():
            small = quantised(model, slot_nodes, folder)
        runs[INT8_FILE] = _written(folder / INT8_FILE, small)
    found: dict[str, Any] = {"checked": difference}
    if tokens is not None:
        words = source.architecture.vocabulary_size
        found |= {
            "tokens": len(tokens) - 1,
            "nats_per_token": {
                name: nats_per_token(run, tokens, graph.zeros, words) for name, run in runs.items()
            },
        }
    shape = write_manifest(folder, source, graph, "onnx", list(runs), found)
    checked = f"differs from the model by at most {difference:.1e} nats in onnxruntime"
    nats = found.get("nats_per_token", {})
    return [shape, checked, *(_line(folder / name, nats.get(name)) for name in runs)]


def _written(path: Path, model: Any) -> "Session":
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path), full_check=True)
    return Session(path)


def _line(path: Path, nats: float | None) -> str:
    measured = "" if nats is None else f", {nats:.4f} nats per token"
    return f"{path.name}: {path.stat().st_size / 1e6:,.2f} MB{measured}"


def check_size(graph: GraphModel, source: Path) -> None:
    """Raise ValueError where a graph's constants are more than one file holds."""
    # A tensor that has two names stands here once.
    tensors = (*graph.parameters(), *graph.buffers())
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if size > MOST_BYTES:
        raise ValueError(
            f"{source}: its {size / 1e9:.1f} GB of weights are more than one ONNX file holds "
            f"({MOST_BYTES / 1e9:.1f}); take --to torch or --to hf"
        )


def converted(graph: GraphModel, program: ExportedProgram) -> tuple[Any, list[str]]:
    """The program of a graph as ONNX, and the names of the nodes that belong to its slots.

    Nothing of this machine is in it, and its sizes that are free are `batch` and `length`.
    """
    names = list(graph.zeros(1))
    with torch.no_grad(), quiet():
        made = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[IDS, *names],
            output_names=[LOG_PROBS, *(NEXT + name for name in names)],
            verbose=False,
        )
    assert made is not None
    model = made.model_proto
    slot_nodes = [node.name for node in model.graph.node if _is_of_slot(node)]
    ids = next(value for value in model.graph.input if value.name == IDS)
    batch, length = (size.dim_param for size in ids.type.tensor_type.shape.dim)
    free = {batch: "batch", length: "length"}
    for value in (*model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = free[size.dim_param]
    # Whoever runs the graph infers them anew, from sizes of other names.
    del model.graph.value_info[:]
    _forget_origin(model.graph)
    return model, slot_nodes


def _is_of_slot(node: Any) -> bool:
    scopes = [entry.value for entry in node.metadata_props if entry.key.endswith("name_scopes")]
    return any("model.slots." in scope for scope in scopes)


def _forget_origin(graph: Any) -> None:
    """Remove the lines of code, and so the paths, that every node and tensor was made by."""
    graph.doc_string = ""
    del graph.metadata_props[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        part.doc_string = ""
        del part.metadata_props[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _forget_origin(attribute.g)


class Session:
    """Runs an ONNX file as a model, on the CPU and on one thread for each core that is free."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, ids_BT: Tensor, memories: Memories) -> tuple[Tensor, Memories]:
        """Read a segment."""
        feeds = {IDS: ids_BT, **memories}
        log_prob_BTV, *carried = (
            torch.from_numpy(array)
            for array in self._session.run(None, {name: x.numpy() for name, x in feeds.items()})
        )
        return log_prob_BTV, dict(zip(memories, carried, strict=True))
