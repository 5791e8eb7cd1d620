"""Measure a saved model on any text, also with another memory, window or clamp than in training.

MODEL is a model folder: RUN/model, or RUN/retrain/NAME/seed-N/model. Each FILE is UTF-8 text and
one document; every token is scored exactly once. Options that are left out are those of the model's
own test, so the text of that test gives the result in its result.json.

    python -m tools.evaluate runs/quickstart/model --data some.txt
    python -m tools.evaluate runs/quickstart/model --data some.txt --memory 0 64 256 --clamp 128

Word perplexity is exp(total nats / words). Words are separated by white space, and each end of line
counts as one more word, as in papers on WikiText.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from model import Architecture
    from pipeline.run_files import Saved
    from training.evaluation import Evaluation

WORDS = "between white space, and one for each end of line"
COLUMNS = {  # measure: title, decimals
    "nats_per_token": ("nats/token", 4),
    "perplexity": ("perplexity", 2),
    "bits_per_byte": ("bits/byte", 4),
    "word_perplexity": ("word perplexity", 2),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with cli.user_errors(loads=None):
        from model.architecture import check_model_folder

        check_model_folder(arguments.model)
        cli.loading("torch")
        measure(arguments)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; those of the model, but `memory`, are there only where they were given."""
    parser = cli.tool_parser("evaluate", __doc__)
    add, absent = parser.add_argument, argparse.SUPPRESS
    add("model", type=Path, metavar="MODEL", help="a model folder")
    add("--data", type=Path, nargs="+", required=True, metavar="FILE", help="UTF-8 texts")
    add("--memory", type=int, nargs="+", metavar="M",
        help="tokens of memory; several give a line each (default: the model's own)")  # fmt: skip
    add("--window", type=_number, default=absent, metavar="W",
        help="keys that a query sees; none: all (default: the model's own)")  # fmt: skip
    add("--clamp", type=_number, default=absent, metavar="N",
        help="largest encoded distance; none: no limit (default: the model's own)")  # fmt: skip
    add("--streams", type=cli.number_from(1), default=absent, metavar="B",
        help="streams read in parallel (default: as in the model's own test, of a shorter "
        "text fewer)")  # fmt: skip
    add("--segment", type=cli.number_from(1), default=absent, metavar="T",
        help="sequence length in tokens (default: as in that test)")  # fmt: skip
    add("--context", type=cli.number_from(0), default=absent, metavar="N",
        help="unscored tokens before each stream's part (default: as in that test)")  # fmt: skip
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N")
    add("--precision", choices=("float32", "bfloat16", "float64"), default="float32",
        help="of matrix products; float64: of the weights too")  # fmt: skip
    add("--json", type=cli.file_to_write, metavar="OUT", help="write the results to a new file too")
    return parser.parse_args(argv)


def _number(text: str) -> int | None:
    if text != "none" and not text.removeprefix("-").isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number or none, found {text!r}")
    return None if text == "none" else int(text)


def measure(arguments: argparse.Namespace) -> None:
    """Score the text once for each line of the table, and print and write it.

    All that can be checked before the first token is scored is checked.
    """
    from model import adjustable_options, adjusted
    from pipeline.devices import device_of
    from pipeline.run_files import read_model_folder
    from utils.text import plural

    device, saved = device_of(arguments.device), read_model_folder(arguments.model)
    own = saved.architecture
    given = vars(arguments)
    options = {name: given[name] for name in ("window", "clamp") if name in given}
    variants = [{"memory": rows, **options} for rows in arguments.memory or ()] or [options]
    try:
        changed = [adjusted(own, variant) for variant in variants]
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    cut = {name: given.get(name, value) for name, value in saved.cut.items()}
    text = read_documents(arguments.data, saved)
    scored = len(text.tokens) - 1
    if "streams" not in given and saved.scored_tokens:
        # Cut into as many, a shorter text would hardly fill the memory of each.
        cut["streams"] = min(cut["streams"], max(1, scored * cut["streams"] // saved.scored_tokens))
    cut["streams"] = min(cut["streams"], scored)
    columns = {name: at for name, at in COLUMNS.items() if text.words or name != "word_perplexity"}
    counted = f", {text.words:,} words ({WORDS})" if text.words else ""
    print(
        f"model: {own.name}, layout {own.letters()}, trained with {options_text(own)}",
        f"text: {scored:,} tokens, {text.bytes:,} bytes{counted}; "
        f"{plural(len(arguments.data), 'document')}",
        f"measured with {options_text(changed[0], but='memory')}; "
        f"{plural(cut['streams'], 'stream')} of {cut['segment']} tokens, {cut['context']} of "
        f"context; {device}, {arguments.precision}",
        *(f"lossy: {loss}" for loss in saved.tokenizer.losses),
        "",
        "".join([f"{'memory':>8}", *(f"  {title}" for title, _ in columns.values())]),
        sep="\n",
        flush=True,
    )
    rows = []
    for variant, architecture in zip(variants, changed, strict=True):
        result = score(saved, variant, text, cut, device, arguments.precision)
        row: dict[str, Any] = {
            "options": adjustable_options(architecture),
            "nats": result.nats,
            **result.row(),
        }
        rows.append(row)
        memories = [one["memory"] for one in row["options"].values() if "memory" in one]
        memory = "/".join(dict.fromkeys(map(_shown, memories))) or "-"
        cells = (f"  {_cell(row.get(name), *shape)}" for name, shape in columns.items())
        print(f"{memory:>8}", *cells, sep="", flush=True)
    if arguments.json is not None:
        how = {**cut, "device": str(device), "precision": arguments.precision}
        write_json(arguments.json, saved, arguments.data, how, rows)


def write_json(
    path: Path,
    saved: "Saved",
    files: Sequence[Path],
    how: dict[str, Any],
    rows: Sequence[dict[str, Any]],
) -> None:
    """Write the table with what it was measured on and how."""
    from model import adjustable_options
    from utils.files import write_whole

    own = saved.architecture
    content = {
        "model": str(saved.folder),
        "name": own.name,
        "layout": own.letters(),
        "trained_with": adjustable_options(own),
        "data": [str(one) for one in files],
        "documents": len(files),
        "words": WORDS,
        **how,
        "rows": rows,
    }
    write_whole(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


@dataclass(frozen=True)
class Text:
    """Documents: their ids with `<doc>` before each, and how much they hold.

    `words` is None where there is none, or where the tokenizer loses text.
    """

    tokens: "NDArray[np.int64]"
    bytes: int
    words: int | None


def read_documents(files: Sequence[Path], saved: "Saved") -> Text:
    """Read UTF-8 files, one document each."""
    from data import count_words, encode_documents
    from data.text import to_utf8_text

    texts = [to_utf8_text(path.read_bytes(), str(path)) for path in files]
    words = sum(count_words(text) for text in texts)
    return Text(
        tokens=encode_documents(saved.tokenizer, texts),
        bytes=sum(len(text.encode()) for text in texts),
        words=None if saved.tokenizer.losses else words or None,
    )


def score(
    saved: "Saved",
    options: Mapping[str, int | None],
    text: Text,
    cut: Mapping[str, int],
    device: "torch.device",
    precision: str,
) -> "Evaluation":
    """Score the text once by the model with other options (`adjusted`)."""
    import torch

    from data import EvaluationStreams
    from model import load_model
    from training.evaluation import evaluate
    from training.step import Forward

    if (memory := options.get("memory")) is not None:
        # No rows that no stream is long enough to fill.
        longest = (len(text.tokens) - 1) // cut["streams"] + 1 + cut["context"]
        options = {**options, "memory": min(memory, longest)}
    model = load_model(saved.folder, options)
    model = model.to(device, torch.float64 if precision == "float64" else None)
    lengths_V = saved.tokenizer.byte_length_V
    with Forward(device, "bfloat16" if precision == "bfloat16" else "float32").autocast():
        return evaluate(
            model,
            EvaluationStreams(text.tokens, **cut, words=text.words),
            byte_length_V=None if lengths_V is None else torch.tensor(lengths_V),
            device=device,
        )


def options_text(architecture: "Architecture", but: str = "") -> str:
    """Options that can be changed in a model, by label."""
    from model import adjustable_options

    parts = []
    for label, options in adjustable_options(architecture).items():
        values = [f"{name} {_shown(value)}" for name, value in options.items() if name != but]
        parts.append(f"{label}: {', '.join(values)}")
    return "; ".join(parts) or "nothing that can be changed"


def _shown(value: int | None) -> str:
    return "none" if value is None else str(value)


def _cell(value: float | None, title: str, decimals: int) -> str:
    shown = "-" if value is None else f"{value:.{decimals}f}" if value < 1e7 else f"{value:.4g}"
    return f"{shown:>{len(title)}}"


if __name__ == "__main__":
    sys.exit(main())
