"""Convert a checkpoint of facebookresearch/adaptive-span into a model folder.

FILE is a checkpoint of its training, or one of its released enwik8.pt, enwik8_large.pt, text8.pt
and text8_large.pt. It is read as plain tensors: code in it is refused. OUT is a new folder, which
`tools.evaluate` and `load_model` read.

    python -m benchmarks.from_adaptive_span enwik8.pt models/enwik8 --corpus enwik8
    python -m benchmarks.from_adaptive_span my.pt models/my --text train.txt valid.txt test.txt

The file numbers symbols in the order of their first occurrence in the text, so the text is needed:
enwik8 and text8 are downloaded unless they are in the cache; --text takes your own splits, in this
order, if every byte was a symbol and the end of a line its <eos>. The model computes what
the original code computes, also at the beginning of a stream. Differs: 1e-8 is not added to sums of
weights, and each layer has a copy of the position vectors, which all layers share in the original.
"""

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli

if TYPE_CHECKING:
    from torch import Tensor

END_OF_LINE, DOC, SIZE = ord("\n"), 256, 257
# The logit of what the text never had: e^-100 of the probability changes no sum.
NEVER = -100.0
# Of all experiments there; it only matters where the model is trained further.
SPAN_LOSS = 5e-7
MASK = "attn.attn.adaptive_span._mask.current_val"
_TEMPLATE = re.compile(r"layers\.\d+\.attn\.attn\.adaptive_span\._mask\.mask_template")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.tool_parser(None, __doc__)
    parser.prog = "python -m benchmarks.from_adaptive_span"
    parser.add_argument("file", type=Path, metavar="FILE", help="the checkpoint")
    parser.add_argument("out", type=Path, metavar="OUT", help="the model folder to write")
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--corpus", choices=("enwik8", "text8"),
        help="the text it was trained on (give this or --text; no default)")  # fmt: skip
    text.add_argument("--text", type=Path, nargs="+", metavar="FILE",
        help="the same as your own files, one per split (no default)")  # fmt: skip
    ramp = cli.number_from(1, 2**20)
    parser.add_argument("--ramp", type=ramp, default=32, metavar="R",
        help="its --adapt-span-ramp, which FILE does not hold")  # fmt: skip
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
    theirs = read_state(path)
    if arguments.corpus:
        parts = list(read_corpus(arguments.corpus))
    else:
        parts = [part.read_bytes() for part in arguments.text]
    symbols = symbols_of(parts, stripped=arguments.corpus == "text8")
    tokenizer = Tokenizer(Bytes())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    try:
        dtype = torch.promote_types(theirs["key_pe"].dtype, torch.float32)
        content = architecture_of(theirs, arguments.ramp)
        content["tokenizer"] = {"digest": tokenizer.digest}
        content["provenance"] = {"from": "facebookresearch/adaptive-span", "sha256": sha256}
        architecture = Architecture.model_validate(content)
        if (count := len(theirs["in_emb.weight"])) != len(symbols):
            raise ValueError(
                f"it has {count} symbols, and the text has {len(symbols)}; give the text that it "
                "was trained on"
            )
        tensors = weights_of({name: t.double() for name, t in theirs.items()}, symbols)
        with torch.device("meta"):
            model = build_model(architecture)
        model.load_state_dict({name: t.to(dtype) for name, t in tensors.items()}, assign=True)
    except (LookupError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"{path}: not the tensors of adaptive-span without persistent vectors and adaptive "
            f"softmax ({' '.join(str(error).split()):.300})"
        ) from None
    with folder_made_whole(out) as work:
        save_model(work, model, architecture)
        tokenizer.save(work)
    span, dense = content["blocks"][:2]
    return (
        f"{out}: {len(content['blocks']) // 2} layers, d_model {content['d_model']}, "
        f"{span['n_heads']} heads, d_ffn {dense['d_ffn']}, span {span['span']}, ramp "
        f"{arguments.ramp}\n{len(symbols)} bytes are symbols; the other {DOC - len(symbols)} are "
        f"untrained: read as zeros, and never predicted (a logit of {NEVER:g})\n"
        "<doc> is not known there: it is read as the end of a line, and never predicted\n"
        f"next: python -m tools.evaluate {out} --data FILE --streams 8 --segment 512"
    )


def read_state(path: Path) -> "dict[str, Tensor]":
    """The model's tensors by name, without what parallel training puts before the names."""
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch has no class for all that a file of something else ends in
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: is not a checkpoint of plain tensors ({reason:.80})") from None
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not all(isinstance(t, torch.Tensor) for t in model.values()):
        raise ValueError(
            f"{path}: holds no tensors under the key model; give a checkpoint of adaptive-span"
        )
    state = {name.removeprefix("module."): tensor for name, tensor in model.items()}
    return {name: tensor for name, tensor in state.items() if not _TEMPLATE.fullmatch(name)}


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


def architecture_of(theirs: "dict[str, Tensor]", ramp: int) -> dict[str, Any]:
    """The content of the architecture but for its tokenizer, by the shapes of the tensors."""
    layers = {match[1] for name in theirs if (match := re.match(r"layers\.(\d+)\.", name))}
    _, d_head, length = theirs["key_pe"].shape
    span = {"kind": "adaptive_span", "label": "adaptive_span", "span": length,
        "ramp": ramp, "first_span": 0.0, "span_loss": SPAN_LOSS, "positions": "learned",
        "sees_itself": False, "qk_norm": False, "n_heads": len(theirs[f"layers.0.{MASK}"]),
        "d_head": d_head}  # fmt: skip
    d_ffn = len(theirs["layers.0.ff.fc1.weight"])
    dense = {"kind": "dense", "label": "dense", "d_ffn": d_ffn, "activation": "relu", "chunk": 1}
    return {
        "name": "adaptive_span",
        "d_model": theirs["in_emb.weight"].shape[1],
        "blocks": [span, dense] * len(layers),
        "options": {"norm_position": "post", "last_norm": False},
        "softmax": {"tied": False},
        "vocabulary_size": SIZE,
    }


def weights_of(theirs: "dict[str, Tensor]", symbols: bytes) -> "dict[str, Tensor]":
    """Our tensors by name, such that the model computes what is computed there.

    KeyError: one of theirs is missing; ValueError: one is left over.
    """
    import torch

    take, rows = theirs.pop, list(symbols)
    inner = take("in_emb.weight")
    embedding = inner.new_zeros(SIZE, inner.shape[1])
    # There the embeddings are not multiplied by sqrt(D).
    embedding[rows] = inner / inner.shape[1] ** 0.5
    embedding[DOC] = embedding[END_OF_LINE]
    ours, distance_LK, number = {"embedding.head": embedding}, take("key_pe")[0].T.flip(0), 0
    while f"layers.{number}.{MASK}" in theirs:
        layer = f"layers.{number}."
        span, dense = (f"slots.{2 * number + place}." for place in (0, 1))
        attention = f"{span}blocks.adaptive_span.attention."
        query, key, value, output = (
            take(f"{layer}attn.proj_{name}.weight") for name in ("query", "key", "val", "out")
        )
        ours |= {f"{attention}query.weight": query, f"{attention}output.weight": output}
        ours[f"{attention}key_value.weight"] = torch.cat([key, value])
        ours[f"{attention}distance_LK"] = distance_LK.clone()
        span_H = ours[f"{span}blocks.adaptive_span.span_H"] = take(layer + MASK).ravel()
        for name in ("u_HK", "v_HK"):
            ours[attention + name] = query.new_zeros(len(span_H), distance_LK.shape[1])
        for part in ("weight", "bias"):
            ours[f"{dense}blocks.dense.inner.{part}"] = take(f"{layer}ff.fc1.{part}")
            ours[f"{dense}blocks.dense.outer.{part}"] = take(f"{layer}ff.fc2.{part}")
            ours[f"{span}norms.adaptive_span.{part}"] = take(f"{layer}norm1.{part}")
            ours[f"{dense}norms.dense.{part}"] = take(f"{layer}norm2.{part}")
        number += 1
    # The softmax has no biases: behind a last norm of weights and biases 1, whose output has a mean
    # of exactly 1, what is added to all of a row is added D times to its logit. So the norm's own
    # weights and biases, and the softmax's biases, go into the rows.
    weight_VD, last = take("out_emb.weight"), f"slots.{2 * number - 1}.norms.dense."
    scaled_VD = weight_VD * ours[f"{last}weight"]
    logit_V = take("out_emb.bias") + weight_VD @ ours[f"{last}bias"]
    table = torch.full_like(embedding, NEVER / embedding.shape[1])
    table[rows] = scaled_VD + ((logit_V - scaled_VD.sum(1)) / embedding.shape[1])[:, None]
    ours["softmax.head"] = table
    for part in ("weight", "bias"):
        ours[last + part] = torch.ones_like(ours[last + part])
    if theirs:
        raise ValueError(f"unknown: {', '.join(theirs)}")
    return ours


if __name__ == "__main__":
    sys.exit(main())
