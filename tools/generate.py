"""Go on with a text by a saved model; the text appears as it is made.

MODEL is a model folder: RUN/model, or RUN/retrain/NAME/seed-N/model. Only new text is printed on
stdout, up to --tokens tokens or to the end of the document (`<doc>`). Every token is read once,
keys and values are kept, and a prompt may be longer than the memory.

    python -m tools.generate runs/quickstart/model --prompt "def read(path):"
    python -m tools.generate runs/quickstart/model --file long.txt --temperature 0 --tokens 500

The same seed gives the same text. With --count, sample k of --seed S is that of --seed S + k.
"""

import argparse
import codecs
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli
from utils.text import visible

if TYPE_CHECKING:
    import torch

    from data import Tokenizer
    from model import LanguageModel, Sampling, StreamState
    from model.generation import Reading

MOST = 2**30
MOST_SEED = 2**31 - 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with cli.user_errors():
        sampler, prompt = prepare(arguments)
        try:
            samples(sampler, prompt, arguments)
            code = 0
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            code = cli.INTERRUPTED
        print(sampler.speeds(), file=sys.stderr)
    return code


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("generate", __doc__)
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a model folder")
    prompts = parser.add_mutually_exclusive_group()
    prompts.add_argument("--prompt", default="", metavar="TEXT",
        help="the text to go on with, or - for stdin (default: a new document)")  # fmt: skip
    prompts.add_argument("--file", type=Path, metavar="FILE",
        help="a file of UTF-8 text in its place (default: none)")  # fmt: skip
    add("--tokens", type=cli.number_from(1, MOST), default=200, metavar="N",
        help="most new tokens of a sample")  # fmt: skip
    add("--temperature", type=float, default=1.0, metavar="T",
        help="above 1 is more even, below 1 sharper, 0 takes the likeliest")  # fmt: skip
    add("--top-k", type=cli.number_from(1, MOST), metavar="K",
        help="keep the K likeliest tokens (default: all)")  # fmt: skip
    add("--top-p", type=float, metavar="P",
        help="keep the likeliest tokens that add up to P (default: all)")  # fmt: skip
    add("--seed", type=cli.number_from(0, MOST_SEED), default=0, metavar="S", help="of the draws")
    add("--count", type=cli.number_from(1, MOST), default=1, metavar="N", help="samples")
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N")
    return parser.parse_args(argv)


@dataclass
class Sampler:
    """A model with its tokenizer, how text is drawn from it, `most` tokens a sample, and how fast.

    `tokens` and `seconds` are those of prompts that were read, and of what was drawn.
    """

    model: "LanguageModel"
    tokenizer: "Tokenizer"
    sampling: "Sampling"
    most: int
    tokens: dict[str, int] = field(default_factory=lambda: {"new": 0, "prompt": 0})
    seconds: dict[str, float] = field(default_factory=lambda: {"new": 0.0, "prompt": 0.0})

    def read(self, ids: Sequence[int], state: "StreamState") -> "Reading":
        """Read the ids of a prompt."""
        import torch

        from model.generation import read

        began_s = time.perf_counter()
        reading = read(self.model, torch.tensor([list(ids)]), state)
        self.tokens["prompt"] += len(ids)
        self.seconds["prompt"] += time.perf_counter() - began_s
        return reading

    def pieces(
        self, reading: "Reading", generator: "torch.Generator"
    ) -> Iterator[tuple[str, "Reading", int]]:
        """Yield what each id of a sample adds to its text: whole characters only.

        With it comes where the sample stands: what was read, and the id, which is not read yet.
        """
        from model.generation import steps

        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        drawn = steps(self.model, reading, self.sampling, [generator])
        began_s = time.perf_counter()
        try:
            for number, (reading, id_B) in enumerate(islice(drawn, self.most), 1):
                new = int(id_B)
                ends = number == self.most or new == self.tokenizer.doc_id
                self.tokens["new"] += 1
                yield decoder.decode(self.tokenizer.decode_bytes([new]), ends), reading, new
                if ends:
                    return
        finally:
            self.seconds["new"] += time.perf_counter() - began_s

    def speeds(self) -> str:
        """Tokens per second of the prompts and of the samples."""
        return "; ".join(
            f"{kind}: {count} tokens, {count / max(self.seconds[kind], 1e-9):.1f} tokens/s"
            for kind, count in self.tokens.items()
        )


def prepare(arguments: argparse.Namespace) -> tuple[Sampler, list[int]]:
    """The sampler, and the ids of the prompt with `<doc>` before them."""
    from data import encode_documents
    from model import Sampling, load_model
    from pipeline.devices import device_of
    from pipeline.run_files import describe

    names = ("temperature", "top_k", "top_p")
    try:
        sampling = Sampling(**{name: getattr(arguments, name) for name in names})
    except ValueError as error:
        name, _, problem = str(error).partition(":")
        raise ValueError(f"--{name.replace('_', '-')}:{problem}") from None
    device = device_of(arguments.device)
    saved = describe(arguments.model)
    model = load_model(arguments.model).to(device)
    for loss in saved.tokenizer.losses:
        print(f"lossy: {loss}", file=sys.stderr)
    prompt = encode_documents(saved.tokenizer, [prompt_of(arguments)]).tolist()
    return Sampler(model, saved.tokenizer, sampling, arguments.tokens), prompt


def prompt_of(arguments: argparse.Namespace) -> str:
    """The text of the prompt; bytes that are no UTF-8 are kept where they come from stdin."""
    from data.text import to_text, to_utf8_text

    if arguments.file is not None:
        raw = arguments.file.read_bytes()
        return to_utf8_text(raw, str(arguments.file)) if raw else ""
    prompt: str = arguments.prompt
    return to_text(sys.stdin.buffer.read()) if prompt == "-" else prompt


def samples(sampler: Sampler, prompt: Sequence[int], arguments: argparse.Namespace) -> None:
    """Print samples that all go on with the prompt, which is read once."""
    import torch

    reading = sampler.read(prompt, sampler.model.initial_state(1, cached=True))
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        if arguments.count > 1:
            print(f"== seed {seed}")
        # One after the other: what a sample wrote behind the prompt's keys, the next writes over.
        generator = torch.Generator().manual_seed(seed)
        for text, _, _ in sampler.pieces(reading, generator):
            show(text)
        print(flush=True)


def show(text: str) -> None:
    """Print text at once; a terminal gets escapes for what it would obey."""
    from utils.files import named

    if sys.stdout.isatty():
        text = re.sub(r"[^\n\t]+", lambda part: visible(part[0]), text)
    with named("what takes the text"):
        print(text, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
