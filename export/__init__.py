"""The registry of exporters. One more is a module here and an entry in EXPORTERS.

Nothing heavy is imported: `--help` reads this file.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Exporter:
    """What a model folder becomes, and what that takes.

    The `module` has `write_folder(source, folder)`, called with an `export.source.Source` and an
    empty folder to write to, which returns lines to print. ValueError: something of the model
    cannot be carried. `packages` are what it imports.
    """

    words: str
    packages: tuple[str, ...]
    module: str


EXPORTERS: dict[str, Exporter] = {
    "hf": Exporter(
        words="a folder that transformers loads (AutoModelForCausalLM, AutoTokenizer)",
        packages=("transformers", "tokenizers"),
        module="export.huggingface.folder",
    ),
    "onnx": Exporter(
        words="a graph that onnxruntime runs, with ids and memories as inputs and outputs",
        packages=("onnx", "onnxscript", "onnxruntime"),
        module="export.onnx",
    ),
    "torch": Exporter(
        words="a graph that torch.export.load reads, with the same inputs and outputs",
        packages=(),
        module="export.torch_export",
    ),
}
