"""The graph of a model by torch.export, and the folder that holds it.

B batch   T segment length
"""

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.export import Dim, ExportedProgram

from export.graph import GraphModel
from export.manifest import finished
from export.source import Source

FILE = "model.pt2"
# Neither is special to torch.export, as 0 and 1 are.
_BATCH, _LENGTH = 2, 3


def write_folder(source: Source, folder: Path) -> list[str]:
    """Write the graph, the tokenizer and a manifest into an empty folder; returns lines to print.

    ValueError: a kind of block cannot be carried, or the graph does not compute the model.
    """
    graph = graph_of(source)
    program = exported(graph)
    run = program.module()
    # As the only part of the archive they would be pickled; the rest is JSON and plain numbers.
    program.example_inputs = None
    with quiet():
        torch.export.save(program, folder / FILE)
    return finished(run, source, graph, folder / FILE)


def graph_of(source: Source) -> GraphModel:
    """The model as a graph, which leaves the source as it is."""
    return GraphModel(copy.deepcopy(source.model).float())


def exported(graph: GraphModel) -> ExportedProgram:
    """The program of any batch and any length from 1 on; no path of this machine is in it."""
    zeros = graph.zeros(_BATCH)
    ids_BT = torch.zeros(_BATCH, _LENGTH, dtype=torch.int64)
    batch = Dim("batch")
    shapes = ({0: batch, 1: Dim("length")}, {name: {0: batch} for name in zeros})
    with torch.no_grad(), quiet():
        program = torch.export.export(graph, (ids_BT, zeros), dynamic_shapes=shapes, strict=False)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)
    return program


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what exporters say of themselves and of packages that are not there off the screen."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
