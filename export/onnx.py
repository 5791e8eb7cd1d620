"""The graph of a model as ONNX, run once beside the model before anybody gets it.

B batch   T segment length   V vocabulary
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torch import Tensor
from torch.export import ExportedProgram

from export.graph import GraphModel, Memories
from export.manifest import (
    IDS,
    LOG_PROBS,
    NEXT,
    check_program,
    nats_per_token,
    tokens_of,
    write_manifest,
)
from export.source import Source
from export.torch_export import exported, graph_of, quiet

FILE, INT8_FILE = "model.onnx", "model.int8.onnx"
# A file of protocol buffers cannot be larger.
MOST_BYTES = 2**31 - 2**20
_PRODUCTS = ("MatMul", "Gemm")


def write_folder(
    source: Source, folder: Path, *, int8: bool = False, data: Sequence[Path] = ()
) -> list[str]:
    """Write the graph, the tokenizer and a manifest into an empty folder; returns lines to print.

    With `int8` there is a second graph of smaller weights; `data` are texts that both are measured
    on. ValueError: a kind cannot be carried, the model is too large for a file, or the graph does
    not compute it.
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
    slot_nodes = [
        node.name
        for node in model.graph.node
        for entry in node.metadata_props
        if entry.key.endswith("name_scopes") and "model.slots." in entry.value
    ]
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


def quantised(model: Any, slot_nodes: Sequence[str], work: Path) -> Any:
    """The model with int8 matrices in the slots; embedding and softmax stay as they are.

    Activations stay float32 between the products; before each they are rounded to 8 bits with a
    scale of their own, the weights once with a scale for every column. `work` is a folder for files
    that are gone afterwards. ValueError: no slot has a product with a matrix of weights.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    _fold_transposed(plain.graph)
    matrices = {tensor.name for tensor in plain.graph.initializer if len(tensor.dims) == 2}
    own = set(slot_nodes)
    chosen = [
        node.name
        for node in plain.graph.node
        if node.op_type in _PRODUCTS and node.name in own and node.input[1] in matrices
    ]
    if not chosen:
        raise ValueError("--int8: no slot has a product with weights; leave it out")
    before, after = work / "float.onnx", work / "int8.onnx"
    try:
        onnx.save(plain, str(before))
        quantize_dynamic(
            str(before),
            str(after),
            op_types_to_quantize=list(_PRODUCTS),
            nodes_to_quantize=chosen,
            per_channel=True,
            weight_type=QuantType.QInt8,
            # Seven bits: without VNNI a CPU adds two products in 16 bits, and would saturate.
            reduce_range=True,
        )
        return onnx.load(str(after))
    finally:
        before.unlink(missing_ok=True)
        after.unlink(missing_ok=True)


def _fold_transposed(graph: Any) -> None:
    """Store matrices of weights as the products read them: the quantiser takes no other ones."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    readers = [name for node in graph.node for name in node.input]
    for node in list(graph.node):
        if node.op_type != "Transpose" or len(node.input) != 1 or node.input[0] not in weights:
            continue
        weight = weights[node.input[0]]
        # The embedding reads the softmax's tables too.
        if len(weight.dims) != 2 or readers.count(weight.name) > 1:
            continue
        turned = numpy_helper.from_array(numpy_helper.to_array(weight).T.copy(), node.output[0])
        graph.initializer.remove(weight)
        graph.initializer.append(turned)
        graph.node.remove(node)
