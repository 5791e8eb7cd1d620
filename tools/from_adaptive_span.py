"""Make a model folder of a checkpoint of facebookresearch/adaptive-span.

FILE is what its training writes, or one of its released enwik8.pt, enwik8_large.pt, text8.pt and
text8_large.pt. It is read without unpickling it. OUT is a new folder, which `tools.evaluate` and
`load_model` take.

    python -m tools.from_adaptive_span enwik8.pt models/enwik8 --corpus enwik8
    python -m tools.from_adaptive_span my.pt models/my --text train.txt valid.txt test.txt

The file numbers symbols as they first occur in the text, so that text must be there: enwik8 and
text8 are downloaded where they are not in the cache; --text takes the bytes of your own splits, in
this order, where every byte was a symbol and the end of a line its <eos>. The model computes what
the code there computes, also at the beginning of a stream. Differs: sums of weights get no 1e-8,
and each layer has a copy of the position vectors that all layers share there.
"""

import argparse
import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli, exit_codes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from model import Architecture
    from utils.torch_file import StoredTensor

    Read = Callable[[str], NDArray[np.float64]]

CORPORA = ("enwik8", "text8")
END_OF_LINE, DOC, SIZE = ord("\n"), 256, 257
# The logit of what the text never had: e^-100 of the probability changes no sum.
NEVER = -100.0
# Of all experiments there; it only matters where the model is trained further.
SPAN_LOSS = 5e-7


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with exit_codes.user_errors():
        print(convert(arguments))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("from_adaptive_span", __doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="the checkpoint")
    parser.add_argument("out", type=Path, metavar="OUT", help="the model folder to make")
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--corpus", choices=CORPORA, help="its text (no default: this or --text)")
    text.add_argument("--text", type=Path, nargs="+", metavar="FILE",
        help="its text, split by split (no default: this or --corpus)")  # fmt: skip
    parser.add_argument(
        "--ramp",
        type=cli.number_from(1, 2**20),
        default=32,
        metavar="R",
        help="its --adapt-span-ramp, not in FILE",
    )
    return parser.parse_args(argv)


def convert(arguments: argparse.Namespace) -> str:
    """Write the folder; returns what is to be known about it."""
    import numpy as np
    import torch

    from data.tokenizers import Tokenizer
    from data.tokenizers.byte_level import Bytes
    from model import build_model, save_model
    from utils.files import folder_made_whole
    from utils.torch_file import open_torch_file

    path, out = arguments.file, arguments.out
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: is there already; give a new folder")
    with open_torch_file(path) as file:
        state = state_of(file.content, path)
        sizes = sizes_of(state, path)
        texts = read_corpus(arguments.corpus) if arguments.corpus else _read(arguments.text)
        symbols = symbols_of(texts, stripped=arguments.corpus == "text8")
        if len(symbols) != sizes.symbols:
            raise ValueError(
                f"{path}: has {sizes.symbols} symbols, and the text has {len(symbols)}; give the "
                "text that it was trained on"
            )
        tokenizer = Tokenizer(Bytes())
        architecture = architecture_of(sizes, arguments, tokenizer.digest)
        weights = weights_of(
            lambda name: file.tensor(state[name]).astype(np.float64), sizes, symbols
        )
        dtype = np.promote_types(state["key_pe"].storage.dtype, np.float32)
        tensors = {name: torch.from_numpy(array.astype(dtype)) for name, array in weights}
    with torch.device("meta"):
        model = build_model(architecture)
    model.load_state_dict(tensors, assign=True)
    with folder_made_whole(out) as work:
        save_model(work, model, architecture)
        tokenizer.save(work)
    return report(out, sizes, arguments.ramp)


@dataclass(frozen=True)
class Sizes:
    """What the shapes say."""

    layers: int
    d_model: int
    n_heads: int
    d_head: int
    span: int
    d_ffn: int
    symbols: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """All tensors of the layout but the template of the mask, which follows from the span."""
        d, f = self.d_model, self.d_ffn
        shapes: dict[str, tuple[int, ...]] = {
            "in_emb.weight": (self.symbols, d),
            "out_emb.weight": (self.symbols, d),
            "out_emb.bias": (self.symbols,),
            "key_pe": (1, self.d_head, self.span),
        }
        for number in range(self.layers):
            layer = f"layers.{number}."
            shapes |= {f"{layer}attn.proj_{name}.weight": (d, d) for name in PROJECTIONS}
            shapes |= {f"{layer}norm{n}.{part}": (d,) for n in (1, 2) for part in PARTS}
            shapes[f"{layer}{MASK}"] = (self.n_heads, 1, 1)
            shapes |= {f"{layer}ff.fc1.weight": (f, d), f"{layer}ff.fc1.bias": (f,)}
            shapes |= {f"{layer}ff.fc2.weight": (d, f), f"{layer}ff.fc2.bias": (d,)}
        return shapes


PROJECTIONS, PARTS = ("query", "key", "val", "out"), ("weight", "bias")
MASK = "attn.attn.adaptive_span._mask.current_val"
_TEMPLATE = re.compile(r"layers\.\d{1,9}\.attn\.attn\.adaptive_span\._mask\.mask_template")


def state_of(content: Any, path: Path) -> "dict[str, StoredTensor]":
    """The model's tensors by name, without what parallel training puts before the names."""
    from utils.torch_file import StoredTensor

    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not model:
        raise ValueError(
            f"{path}: holds nothing under the key model; give a checkpoint of adaptive-span"
        )
    state: dict[str, StoredTensor] = {}
    for name, stored in model.items():
        short = str(name).removeprefix("module.")
        if not isinstance(stored, StoredTensor) or short in state:
            raise ValueError(f"{path}: {short:.60}: is no tensor, or stands there twice")
        if not _TEMPLATE.fullmatch(short):
            state[short] = stored
    return state


def sizes_of(state: "Mapping[str, StoredTensor]", path: Path) -> Sizes:
    """The sizes; ValueError where one tensor is missing, of another shape, or unknown."""
    axes = {"in_emb.weight": 2, "key_pe": 3, "layers.0.ff.fc1.weight": 2, f"layers.0.{MASK}": 3}
    shape = {name: state[name].shape for name in axes if name in state}
    for name, count in axes.items():
        if len(shape.get(name, ())) != count:
            found = list(shape[name]) if name in shape else "nothing"
            raise ValueError(f"{path}: {name}: must have {count} axes, found {found!s:.60}")
    (symbols, d_model), (_, d_head, span), (d_ffn, _), (n_heads, _, _) = shape.values()
    numbers = {match[1] for name in state if (match := re.match(r"layers\.(\d{1,9})\.", name))}
    sizes = Sizes(len(numbers), d_model, n_heads, d_head, span, d_ffn, symbols)
    if n_heads * d_head != d_model:
        raise ValueError(f"{path}: {n_heads} heads of {d_head} are not {d_model} wide")
    expected, dtype = sizes.shapes(), state["key_pe"].storage.dtype
    for name in [*expected, *state]:
        wanted, given = expected.get(name), state[name].shape if name in state else None
        if wanted != given:
            raise ValueError(
                f"{path}: {name:.80}: found {_words(given)}, and adaptive-span without persistent "
                f"vectors and adaptive softmax has {_words(wanted)}"
            )
        if state[name].storage.dtype != dtype or "f" not in dtype:
            raise ValueError(f"{path}: {name}: all tensors must have one type, of real numbers")
    return sizes


def _words(shape: tuple[int, ...] | None) -> str:
    return "nothing" if shape is None else f"shape {list(shape)!s:.60}"


def _read(paths: Sequence[Path]) -> Iterator[bytes]:
    return (path.read_bytes() for path in paths)


def read_corpus(name: str) -> Iterator[bytes]:
    """The three parts of enwik8 or text8, which are downloaded where they are not there."""
    from data.corpora.base import CorpusPaths
    from data.corpora.downloaded import ARCHIVES, HUTTER_SIZES
    from data.download import fetch, open_member

    progress = partial(print, file=sys.stderr)
    archive = fetch(ARCHIVES[name], CorpusPaths().downloads, progress=progress)
    with open_member(archive, name, limit=sum(HUTTER_SIZES.values())) as stream:
        for size in HUTTER_SIZES.values():
            yield stream.read(size)


def symbols_of(parts: "Iterator[bytes] | Sequence[bytes]", *, stripped: bool = False) -> bytes:
    """The byte of each symbol: they are numbered as they first occur, split after split.

    Every split there ends with <eos>, which is the end of a line here. With `stripped` white space
    at the ends of a split was cut off.
    """
    found: list[int] = []
    for part in parts:
        text = (part.strip() if stripped else part) + b"\n"
        first = {byte: text.find(byte) for byte in range(DOC) if byte not in found}
        found += sorted((byte for byte in first if first[byte] >= 0), key=first.__getitem__)
    return bytes(found)


def architecture_of(sizes: Sizes, arguments: argparse.Namespace, digest: str) -> "Architecture":
    """The model's architecture; ValueError where a size is beyond what one may have."""
    from pydantic import ValidationError

    from model import Architecture

    span = {"kind": "adaptive_span", "label": "adaptive_span", "span": sizes.span,
        "ramp": arguments.ramp, "first_span": 0.0, "span_loss": SPAN_LOSS, "positions": "learned",
        "sees_itself": False, "n_heads": sizes.n_heads, "d_head": sizes.d_head}  # fmt: skip
    dense = {"kind": "dense", "label": "dense", "d_ffn": sizes.d_ffn, "activation": "relu"}
    with arguments.file.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        return Architecture.model_validate(
            {
                "name": "adaptive_span",
                "d_model": sizes.d_model,
                "slots": [span, dense] * sizes.layers,
                "options": {"norm_position": "post", "last_norm": False},
                "softmax": {"tied": False},
                "vocabulary_size": SIZE,
                "tokenizer": {"digest": digest},
                "provenance": {"from": "facebookresearch/adaptive-span", "sha256": sha256},
            }
        )
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise ValueError(
            f"{arguments.file}: {where}: {problem['msg']}, found {problem['input']!r:.60}"
        ) from None


def weights_of(
    read: "Read", sizes: Sizes, symbols: bytes
) -> "Iterator[tuple[str, NDArray[np.float64]]]":
    """Our tensors by name, such that the model computes what is computed there."""
    import numpy as np

    rows = np.frombuffer(symbols, dtype=np.uint8)
    d, heads = sizes.d_model, (sizes.n_heads, sizes.d_head)
    embedding = np.zeros((SIZE, d))
    # There the embeddings are not multiplied by sqrt(D).
    embedding[rows] = read("in_emb.weight") / d**0.5
    embedding[DOC] = embedding[END_OF_LINE]
    yield "embedding.head", embedding
    distance_LK = np.ascontiguousarray(read("key_pe")[0].T[::-1])
    for number in range(sizes.layers):
        theirs = f"layers.{number}."
        ours = f"slots.{2 * number}.blocks.adaptive_span."
        query, key, value, output = (
            read(f"{theirs}attn.proj_{name}.weight") for name in PROJECTIONS
        )
        yield f"{ours}attention.query.weight", query
        yield f"{ours}attention.key_value.weight", np.concatenate([key, value])
        yield f"{ours}attention.output.weight", output
        yield f"{ours}attention.distance_LK", distance_LK
        yield f"{ours}attention.u_HK", np.zeros(heads)
        yield f"{ours}attention.v_HK", np.zeros(heads)
        yield f"{ours}span_H", read(f"{theirs}{MASK}").ravel()
        for layer, name in (("inner", "fc1"), ("outer", "fc2")):
            for part in PARTS:
                place = f"slots.{2 * number + 1}.blocks.dense.{layer}.{part}"
                yield place, read(f"{theirs}ff.{name}.{part}")
        for part in PARTS:
            yield f"slots.{2 * number}.norms.adaptive_span.{part}", read(f"{theirs}norm1.{part}")
            if number < sizes.layers - 1:
                yield f"slots.{2 * number + 1}.norms.dense.{part}", read(f"{theirs}norm2.{part}")
    last = f"layers.{sizes.layers - 1}.norm2."
    table = softmax_of(read, read(f"{last}weight"), read(f"{last}bias"), rows)
    yield "softmax.head", table
    for part in PARTS:
        yield f"slots.{2 * sizes.layers - 1}.norms.dense.{part}", np.ones(d)


def softmax_of(
    read: "Read",
    norm_D: "NDArray[np.float64]",
    bias_D: "NDArray[np.float64]",
    rows: "NDArray[np.uint8]",
) -> "NDArray[np.float64]":
    """The softmax's rows with its biases in them, behind a last norm of weights and biases 1.

    What that norm gives has a mean of exactly 1, so a number that is added to all of a row is added
    D times to its logit; and the weights and biases that the norm had go into the rows too.
    """
    import numpy as np

    weight_VD = read("out_emb.weight")
    logit_V = read("out_emb.bias") + weight_VD @ bias_D
    table = np.full((SIZE, len(norm_D)), NEVER / len(norm_D))
    scaled_VD = weight_VD * norm_D
    table[rows] = scaled_VD + ((logit_V - scaled_VD.sum(axis=1)) / len(norm_D))[:, None]
    return table


def report(out: Path, sizes: Sizes, ramp: int) -> str:
    """What was read, and what the model cannot know."""
    return "\n".join(
        [
            f"{out}: {sizes.layers} layers, d_model {sizes.d_model}, {sizes.n_heads} heads, d_ffn "
            f"{sizes.d_ffn}, span {sizes.span}, ramp {ramp}",
            f"{sizes.symbols} bytes are symbols; the other {DOC - sizes.symbols} are untrained: "
            f"read as zeros, and never expected (a logit of {NEVER:g})",
            "<doc> is not known there: it is read as the end of a line, and never expected",
            f"next: python -m tools.evaluate {out} --data FILE --streams 8 --segment 512",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
