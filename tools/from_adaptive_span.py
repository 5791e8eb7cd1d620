"""Make a model folder of a checkpoint of facebookresearch/adaptive-span.

FILE is what its training writes, or one of its released enwik8.pt, enwik8_large.pt, text8.pt and
text8_large.pt. It is read as plain tensors: code in it is refused. OUT is a new folder, which
`tools.evaluate` and `load_model` take.

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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline import cli

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

END_OF_LINE, DOC, SIZE = ord("\n"), 256, 257
# The logit of what the text never had: e^-100 of the probability changes no sum.
NEVER = -100.0
# Of all experiments there; it only matters where the model is trained further.
SPAN_LOSS = 5e-7
PROJECTIONS, PARTS = ("query", "key", "val", "out"), ("weight", "bias")
MASK = "attn.attn.adaptive_span._mask.current_val"
_TEMPLATE = re.compile(r"layers\.\d+\.attn\.attn\.adaptive_span\._mask\.mask_template")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser("from_adaptive_span", __doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="the checkpoint")
    parser.add_argument("out", type=Path, metavar="OUT", help="the model folder to make")
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--corpus", choices=("enwik8", "text8"),
        help="its text (no default: this or --text)")  # fmt: skip
    text.add_argument("--text", type=Path, nargs="+", metavar="FILE",
        help="its text, split by split (no default: this or --corpus)")  # fmt: skip
    ramp = cli.number_from(1, 2**20)
    parser.add_argument("--ramp", type=ramp, default=32, metavar="R",
        help="its --adapt-span-ramp, not in FILE")  # fmt: skip
    arguments = parser.parse_args(argv)
    with cli.user_errors():
        print(convert(arguments))
    return 0


def convert(arguments: argparse.Namespace) -> str:
    """Write the folder; return a summary of the model and of what it cannot know."""
    import torch

    from data.tokenizers import Tokenizer
    from data.tokenizers.tokenizer import Bytes
    from model import Architecture, build_model, save_model
    from utils.files import folder_made_whole

    path, out = arguments.file, arguments.out
    state = read_state(path)
    sizes = sizes_of(state, path)
    if arguments.corpus:
        parts = list(read_corpus(arguments.corpus))
    else:
        parts = [part.read_bytes() for part in arguments.text]
    symbols = symbols_of(parts, stripped=arguments.corpus == "text8")
    if len(symbols) != sizes.symbols:
        raise ValueError(
            f"{path}: has {sizes.symbols} symbols, and the text has {len(symbols)}; give the "
            "text that it was trained on"
        )
    tokenizer = Tokenizer(Bytes())
    content = architecture_of(sizes, arguments.ramp)
    content["tokenizer"] = {"digest": tokenizer.digest}
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    content["provenance"] = {"from": "facebookresearch/adaptive-span", "sha256": sha256}
    architecture = Architecture.model_validate(content)
    dtype = torch.promote_types(state["key_pe"].dtype, torch.float32)
    theirs = {name: tensor.double().numpy() for name, tensor in state.items()}
    weights = weights_of(theirs, sizes, symbols)
    with torch.device("meta"):
        model = build_model(architecture)
    tensors = {name: torch.tensor(array, dtype=dtype) for name, array in weights}
    model.load_state_dict(tensors, assign=True)
    with folder_made_whole(out) as work:
        save_model(work, model, architecture)
        tokenizer.save(work)
    return (
        f"{out}: {sizes.layers} layers, d_model {sizes.d_model}, {sizes.n_heads} heads, d_ffn "
        f"{sizes.d_ffn}, span {sizes.span}, ramp {arguments.ramp}\n"
        f"{sizes.symbols} bytes are symbols; the other {DOC - sizes.symbols} are untrained: "
        f"read as zeros, and never expected (a logit of {NEVER:g})\n"
        "<doc> is not known there: it is read as the end of a line, and never expected\n"
        f"next: python -m tools.evaluate {out} --data FILE --streams 8 --segment 512"
    )


class Sizes(NamedTuple):
    """Sizes of a model, as the shapes of its tensors say."""

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
        for layer in (f"layers.{number}." for number in range(self.layers)):
            wide = (self.n_heads * self.d_head, d)
            shapes |= {f"{layer}attn.proj_{name}.weight": wide for name in PROJECTIONS}
            shapes |= {f"{layer}norm{n}.{part}": (d,) for n in (1, 2) for part in PARTS}
            shapes[f"{layer}{MASK}"] = (self.n_heads, 1, 1)
            shapes |= {f"{layer}ff.fc1.weight": (f, d), f"{layer}ff.fc1.bias": (f,)}
            shapes |= {f"{layer}ff.fc2.weight": (d, f), f"{layer}ff.fc2.bias": (d,)}
        return shapes


def read_state(path: Path) -> "dict[str, torch.Tensor]":
    """The model's tensors by name, without what parallel training puts before the names."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch has no class for all that a file of something else ends in
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: is no checkpoint of plain tensors ({reason:.80})") from None
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not all(isinstance(t, torch.Tensor) for t in model.values()):
        raise ValueError(
            f"{path}: holds no tensors under the key model; give a checkpoint of adaptive-span"
        )
    state = {name.removeprefix("module."): tensor for name, tensor in model.items()}
    return {name: tensor for name, tensor in state.items() if not _TEMPLATE.fullmatch(name)}


def sizes_of(state: "Mapping[str, torch.Tensor]", path: Path) -> Sizes:
    """The sizes; ValueError where one tensor is missing, of another shape, or unknown."""
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    try:
        (symbols, d_model), (_, d_head, span) = shapes["in_emb.weight"], shapes["key_pe"]
        (d_ffn, _), (n_heads, *_) = shapes["layers.0.ff.fc1.weight"], shapes[f"layers.0.{MASK}"]
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path}: its tensors are not those of adaptive-span ({error})") from None
    numbers = {match[1] for name in state if (match := re.match(r"layers\.(\d+)\.", name))}
    sizes = Sizes(len(numbers), d_model, n_heads, d_head, span, d_ffn, symbols)
    expected, dtype = sizes.shapes(), state["key_pe"].dtype
    for name in [*expected, *state]:
        if expected.get(name) != shapes.get(name):
            raise ValueError(
                f"{path}: {name}: found {shapes.get(name)}, and adaptive-span without persistent "
                f"vectors and adaptive softmax has {expected.get(name)}"
            )
        if state[name].dtype != dtype or not dtype.is_floating_point:
            raise ValueError(f"{path}: {name}: all tensors must have one type, of real numbers")
    return sizes


def read_corpus(name: str) -> Iterator[bytes]:
    """The three parts of enwik8 or text8, which are downloaded where they are not there."""
    from data.corpora.base import CorpusPaths
    from data.corpora.downloaded import ARCHIVES, HUTTER_SIZES, fetch, open_member

    progress = partial(print, file=sys.stderr)
    archive = fetch(ARCHIVES[name], CorpusPaths().downloads, progress=progress)
    with open_member(archive, name) as stream:
        for size in HUTTER_SIZES.values():
            yield stream.read(size)


def symbols_of(parts: Sequence[bytes], *, stripped: bool = False) -> bytes:
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


def architecture_of(sizes: Sizes, ramp: int) -> "dict[str, object]":
    """The content of the architecture but for its tokenizer."""
    span = {"kind": "adaptive_span", "label": "adaptive_span", "span": sizes.span,
        "ramp": ramp, "first_span": 0.0, "span_loss": SPAN_LOSS, "positions": "learned",
        "sees_itself": False, "n_heads": sizes.n_heads, "d_head": sizes.d_head}  # fmt: skip
    dense = {"kind": "dense", "label": "dense", "d_ffn": sizes.d_ffn, "activation": "relu"}
    return {
        "name": "adaptive_span",
        "d_model": sizes.d_model,
        "slots": [span, dense] * sizes.layers,
        "options": {"norm_position": "post", "last_norm": False},
        "softmax": {"tied": False},
        "vocabulary_size": SIZE,
    }


def weights_of(
    theirs: "Mapping[str, Array]", sizes: Sizes, symbols: bytes
) -> "Iterator[tuple[str, Array]]":
    """Our tensors by name, such that the model computes what is computed there."""
    import numpy as np

    rows = np.frombuffer(symbols, dtype=np.uint8)
    embedding = np.zeros((SIZE, sizes.d_model))
    # There the embeddings are not multiplied by sqrt(D).
    embedding[rows] = theirs["in_emb.weight"] / sizes.d_model**0.5
    embedding[DOC] = embedding[END_OF_LINE]
    yield "embedding.head", embedding
    distance_LK = np.ascontiguousarray(theirs["key_pe"][0].T[::-1])
    for number in range(sizes.layers):
        layer = {
            name.removeprefix(f"layers.{number}."): array
            for name, array in theirs.items()
            if name.startswith(f"layers.{number}.")
        }
        ours = f"slots.{2 * number}.blocks.adaptive_span."
        query, key, value, output = (layer[f"attn.proj_{name}.weight"] for name in PROJECTIONS)
        yield f"{ours}attention.query.weight", query
        yield f"{ours}attention.key_value.weight", np.concatenate([key, value])
        yield f"{ours}attention.output.weight", output
        yield f"{ours}attention.distance_LK", distance_LK
        yield f"{ours}attention.u_HK", np.zeros((sizes.n_heads, sizes.d_head))
        yield f"{ours}attention.v_HK", np.zeros((sizes.n_heads, sizes.d_head))
        yield f"{ours}span_H", layer[MASK].ravel()
        dense = f"slots.{2 * number + 1}"
        for part in PARTS:
            yield f"{dense}.blocks.dense.inner.{part}", layer[f"ff.fc1.{part}"]
            yield f"{dense}.blocks.dense.outer.{part}", layer[f"ff.fc2.{part}"]
            yield f"slots.{2 * number}.norms.adaptive_span.{part}", layer[f"norm1.{part}"]
            last = number == sizes.layers - 1
            yield (
                f"{dense}.norms.dense.{part}",
                np.ones(sizes.d_model) if last else layer[f"norm2.{part}"],
            )
    yield "softmax.head", softmax_of(theirs, f"layers.{sizes.layers - 1}.norm2.", rows)


def softmax_of(theirs: "Mapping[str, Array]", norm: str, rows: "NDArray[np.uint8]") -> "Array":
    """The softmax's rows with its biases in them, behind a last norm of weights and biases 1.

    What that norm gives has a mean of exactly 1, so a number that is added to all of a row is added
    D times to its logit; and the weights and biases that the norm had go into the rows too.
    """
    import numpy as np

    weight_VD, norm_D = theirs["out_emb.weight"], theirs[f"{norm}weight"]
    logit_V = theirs["out_emb.bias"] + weight_VD @ theirs[f"{norm}bias"]
    table = np.full((SIZE, len(norm_D)), NEVER / len(norm_D))
    scaled_VD = weight_VD * norm_D
    table[rows] = scaled_VD + ((logit_V - scaled_VD.sum(axis=1)) / len(norm_D))[:, None]
    return table


if __name__ == "__main__":
    sys.exit(main())
