"""The registry of exporters. One more is a module here and an entry in EXPORTERS.

Nothing heavy is imported: `--help` reads this file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Exporter:
    """What a model folder becomes, and what that takes.

    `function` is "module:function"; called as `function(source, folder, **options)` with an
    `export.source.Source` and an empty folder to write to, it returns lines to print. ValueError:
    something of the model cannot be carried. `options` are flags of its own, each with the
    arguments of `add_argument`; `packages` of the `extra` in pyproject.toml are what it imports.
    """

    words: str
    extra: str
    packages: tuple[str, ...]
    function: str
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


EXPORTERS: dict[str, Exporter] = {
    "hf": Exporter(
        words="a folder that transformers loads (AutoModelForCausalLM, AutoTokenizer)",
        extra="hf",
        packages=("transformers", "tokenizers"),
        function="export.huggingface.folder:write_folder",
    ),
    "onnx": Exporter(
        words="a graph that onnxruntime runs, with ids and memories as inputs and outputs",
        extra="onnx",
        packages=("onnx", "onnxscript", "onnxruntime"),
        function="export.onnx:write_folder",
        options={
            "--int8": {
                "action": "store_true",
                "help": "also write the graph with int8 weights, and what that costs on --data",
            },
            "--data": {
                "type": Path,
                "nargs": "+",
                "metavar": "FILE",
                "help": "texts on which the nats of the graphs are measured (default: none)",
            },
        },
    ),
    "torch": Exporter(
        words="a graph that torch.export.load reads, with the same inputs and outputs",
        extra="",
        packages=(),
        function="export.torch_export:write_folder",
    ),
}

__all__ = ["EXPORTERS", "Exporter"]
