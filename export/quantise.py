"""int8 weights in the products of the slots (dynamic quantisation by onnxruntime).

The activations stay float32 between the products; before each they are rounded to 8 bits with a
scale of their own, the weights once with a scale for every column.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

_PRODUCTS = ("MatMul", "Gemm")


def quantised(model: Any, slot_nodes: Sequence[str], work: Path) -> Any:
    """The model with int8 matrices in the slots; embedding and softmax stay as they are.

    ValueError: no slot has a product with a matrix of weights. `work` is a folder for files that
    are gone afterwards.
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
