"""Continue a text with a saved model; the new text appears as it is generated.

MODEL is a model folder: RUN/model, or RUN/retrain/NAME/seed-N/model. Only new text is printed on
stdout, up to --tokens tokens or to the end of the document (`<doc>`). Every token is read once,
keys and values are cached, and a prompt may be longer than the memory.

    python -m tools.generate runs/quickstart/model --prompt "def read(path):"
    python -m tools.generate runs/quickstart/model --file long.txt --temperature 0 --tokens 500

The same seed gives the same text. With --num-samples, sample k of --seed S is that of --seed S + k.
"""

import argparse
import codecs
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli
from utils.text import visible

if TYPE_CHECKING:
    from data import Tokenizer

MOST_SEED = 2**31 - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with cli.user_errors(loads=None):
        from model.architecture import check_model_folder

        check_model_folder(arguments.model)
        cli.loading("torch")
        samples(arguments)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("generate", __doc__)
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a model folder")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", default="", metavar="TEXT",
        help="the text to continue, or - for stdin (default: a new document)")  # fmt: skip
    prompts.add_argument("--file", type=Path, metavar="FILE",
        help="a file of UTF-8 text instead (default: none)")  # fmt: skip
    add("--tokens", type=cli.number_from(1), default=200, metavar="N",
        help="most new tokens per sample")  # fmt: skip
    add("--temperature", type=float, default=1.0, metavar="T",
        help="above 1: more random; below 1: less; 0: always the likeliest token")  # fmt: skip
    add("--top-k", type=cli.number_from(1), metavar="K",
        help="sample from the K likeliest tokens (default: all)")  # fmt: skip
    add("--top-p", type=float, metavar="P",
        help="sample from the likeliest tokens that make up P (default: all)")  # fmt: skip
    add("--seed", type=cli.number_from(0, MOST_SEED), default=0, metavar="S", help="random seed")
    add("--num-samples", type=cli.number_from(1), default=1, metavar="N", help="texts")
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N")
    return parser.parse_args(argv)


def prompt_of(arguments: argparse.Namespace) -> str:
    """The text of the prompt; bytes that are no UTF-8 are kept where they come from stdin."""
    from data.text import to_text, to_utf8_text

    if arguments.file is not None:
        raw = arguments.file.read_bytes()
        return to_utf8_text(raw, str(arguments.file)) if raw else ""
    prompt: str = arguments.prompt
    if prompt == "-":
        prompt = to_text(sys.stdin.buffer.read())
    # As of a file, a byte order mark is no text.
    return prompt.removeprefix("\ufeff")


def samples(arguments: argparse.Namespace) -> None:
    """Print samples that all go on with the prompt, which is read once, and how fast that was."""
    import torch

    from data import encode_documents
    from model import Sampling, load_model
    from model.generation import read, steps
    from pipeline.devices import device_of
    from pipeline.run_files import read_model_folder

    names = ("temperature", "top_k", "top_p")
    try:
        sampling = Sampling(**{name: getattr(arguments, name) for name in names})
    except ValueError as error:
        name, _, problem = str(error).partition(":")
        raise ValueError(f"--{name.replace('_', '-')}:{problem}") from None
    device, saved = device_of(arguments.device), read_model_folder(arguments.model)
    model, tokenizer = load_model(arguments.model).to(device), saved.tokenizer
    for loss in tokenizer.losses:
        print(f"lossy: {loss}", file=sys.stderr)
    prompt = encode_documents(tokenizer, [prompt_of(arguments)])
    began_s = time.perf_counter()
    reading = read(model, torch.tensor(prompt)[None], model.initial_state(1, cached=True))
    read_s, drawn = time.perf_counter(), 0
    try:
        for seed in range(arguments.seed, arguments.seed + arguments.num_samples):
            if arguments.num_samples > 1:
                print(f"== seed {seed}")
            # One after the other: what a sample wrote behind the prompt's keys, the next writes
            # over.
            generator = torch.Generator().manual_seed(seed)
            ids = (int(id_B) for _, id_B in steps(model, reading, sampling, [generator]))
            for text in pieces(tokenizer, ids, arguments.tokens):
                show(text)
                drawn += 1
            print(flush=True)
    finally:
        times = {"prompt": (len(prompt), read_s - began_s)}
        times["new"] = (drawn, time.perf_counter() - read_s)
        speeds = (
            f"{kind}: {count} tokens, {count / max(seconds, 1e-9):.1f} tokens/s"
            for kind, (count, seconds) in times.items()
        )
        print("; ".join(speeds), file=sys.stderr)


def pieces(tokenizer: "Tokenizer", ids: Iterable[int], most: int) -> Iterator[str]:
    """Yield what each id adds to the text, whole characters only, to the document's end."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for number, new in enumerate(islice(ids, most), 1):
        ends = number == most or new == tokenizer.doc_id
        yield decoder.decode(tokenizer.decode_bytes([new]), ends)
        if ends:
            return


def show(text: str) -> None:
    """Print text at once; a terminal gets escapes for what it would obey."""
    from utils.files import named

    if sys.stdout.isatty():
        text = re.sub(r"[^\n\t]+", lambda part: visible(part[0]), text)
    with named("what takes the text"):
        print(text, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
