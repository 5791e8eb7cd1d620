"""The graph of a model as ONNX, run once beside the model before anybody gets it.

B batch   T segment length   V vocabulary
"""

from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from torch import Tensor
from torch.export import ExportedProgram

from export.graph import GraphModel, Memories
from export.manifest import IDS, LOG_PROBS, NEXT, Run, finished
from export.source import Source
from export.torch_export import exported, graph_of, quiet

FILE = "model.onnx"
# A file of protocol buffers cannot be larger.
MOST_BYTES = 2**31 - 2**20


def write_folder(source: Source, folder: Path) -> list[str]:
    """Write the graph, the tokenizer and a manifest into an empty folder; returns lines to print.

    ValueError: a kind cannot be carried, the model is too large for a file, or the graph does not
    compute it.
    """
    graph = graph_of(source)
    # A tensor that has two names stands here once.
    size = sum(tensor.nbytes for tensor in (*graph.parameters(), *graph.buffers()))
    if size > MOST_BYTES:
        raise ValueError(
            f"{source.folder}: its {size / 1e9:.1f} GB of weights are more than one ONNX file "
            f"holds ({MOST_BYTES / 1e9:.1f}); take --to torch or --to hf"
        )
    path = folder / FILE
    path.write_bytes(converted(graph, exported(graph)).SerializeToString())
    return finished(run_of(path), source, graph, path)


def run_of(path: Path) -> Run:
    """What runs an ONNX file as a model, on the CPU."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(ids_BT: Tensor, memories: Memories) -> tuple[Tensor, Memories]:
        feeds = {name: tensor.numpy() for name, tensor in {IDS: ids_BT, **memories}.items()}
        log_prob_BTV, *carried = map(torch.from_numpy, session.run(None, feeds))
        return log_prob_BTV, dict(zip(memories, carried, strict=True))

    return run


def converted(graph: GraphModel, program: ExportedProgram) -> Any:
    """The program of a graph as ONNX.

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
    return model


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
