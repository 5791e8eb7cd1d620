"""Export a trained model, so that other programs can load it without Parnas.

MODEL is a model folder: RUN/model, or RUN/retrain/NAME/seed-N/model. DIR is a new or empty folder;
it is written completely or not at all, and no file is ever overwritten.

    python -m tools.export runs/quickstart/model --to hf exported
    python -m tools.export runs/quickstart/model --to onnx graph

`hf` writes what transformers loads with AutoModelForCausalLM.from_pretrained(DIR,
trust_remote_code=True): weights, tokenizer, the model's code in one file, and a model card.
`onnx` writes model.onnx, a graph of ids and memories for any batch and length, its tokenizer, and
manifest.json, which names inputs and outputs. `torch` writes the same graph as model.pt2, which
torch.export.load reads.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from export import EXPORTERS
from pipeline import cli

if TYPE_CHECKING:
    from export.source import Source


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser("export", __doc__)
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a model folder")
    words = "; ".join(f"{name}: {exporter.words}" for name, exporter in EXPORTERS.items())
    add("--to", required=True, choices=EXPORTERS, help=words)
    add("dir", type=Path, metavar="DIR", help="where to write it, a new or empty folder")
    arguments = parser.parse_args(argv)
    exporter = EXPORTERS[arguments.to]
    with cli.user_errors(loads=None):
        from model.architecture import check_model_folder
        from utils.validation import check_installed

        check_installed(f"--to {arguments.to}", exporter.packages)
        check_model_folder(arguments.model)
        cli.loading("torch")
        from export.source import check_target
        from utils.files import folder_made_whole

        check_target(arguments.dir, arguments.model)
        source = read_source(arguments.model)
        with folder_made_whole(arguments.dir) as folder:
            lines = import_module(exporter.module).write_folder(source, folder)
        print("\n".join([*lines, f"written: {arguments.dir}"]))
    return 0


def read_source(folder: Path) -> "Source":
    """Read and check all of a model folder."""
    from export.source import Source
    from model import load_model
    from pipeline.run_files import read_model_folder, result_of_model
    from utils.files import read_object

    saved, path = read_model_folder(folder), result_of_model(folder)
    result = None if path is None else read_object(path)
    return Source(folder, saved.architecture, load_model(folder), saved.tokenizer, result)


if __name__ == "__main__":
    sys.exit(main())
