"""Show a corpus and its tokenizer: sizes, tokens, overlap, losses, the first words.

Downloads the text, trains the tokenizer and encodes the text, unless that has been done; search.py
then uses the result.

    python -m tools.corpus configs/quickstart.yaml
    python -m tools.corpus configs/quickstart.yaml --set data.tokenizer.kind=unigram
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli
from utils.text import aligned, visible

if TYPE_CHECKING:
    from data import Prepared
    from pipeline.experiment import Experiment

HEAD_CHARACTERS, WIDTH = 500, 100
Row = Sequence[str]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__, writes=False)
    parser.prog = "python -m tools.corpus"
    arguments = parser.parse_args(argv)
    with cli.user_errors(loads=None):
        from pipeline.experiment import experiment_of

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        cli.loading("torch")
        print(page(experiment, run_dir))
    return 0


def page(experiment: "Experiment", run_dir: Path) -> str:
    """The whole page; the text is the one that a run in this directory reads."""
    from pipeline.plan import set_up
    from pipeline.summary import passes_line, text_summary

    data = experiment.data.model_copy(update={"validation_tokens": None, "test_tokens": None})
    plan = set_up(experiment.model_copy(update={"data": data}), run_dir)
    corpus = plan.prepared.corpus
    passes = {"search": plan.search_steps, "retrain": plan.stages.steps}
    batches = plan.training_batches()
    parts = [
        f"corpus: {corpus.name}\ndigest: {corpus.digest}",
        "\n".join(aligned(list(split_rows(plan.prepared)), 1)),
        text_summary(plan),
        "\n".join(f"{phase}: {passes_line(n, batches)}" for phase, n in passes.items() if n),
        f"the training text begins:\n{head(next(corpus.documents('train')).text)}",
    ]
    return "\n\n".join(filter(None, parts))


def split_rows(prepared: "Prepared") -> Iterator[Row]:
    """One row per split: documents, characters, bytes, tokens, and words where known."""
    notes, words = prepared.notes, prepared.notes.get("words", {})
    head = ["", "documents", "characters", "bytes", "tokens", "bytes/token"]
    yield [*head, *(["words", "tokens/word"] if words else [])]
    for split in prepared.tokens:
        tokens, raw = notes["tokens"][split], notes["bytes"][split]
        row = [split, *(f"{notes[key][split]:,}" for key in ("documents", "characters", "bytes"))]
        row += [f"{tokens:,}", f"{raw / tokens:.3f}"]
        if words:
            count = words.get(split)
            row += [f"{count:,}", f"{tokens / count:.3f}"] if count else ["-", "-"]
        yield row


def head(text: str) -> str:
    """The beginning of a text, with what cannot be seen made visible."""
    *lines, last = text[:HEAD_CHARACTERS].split("\n")
    shown = [*(visible(line) + "\\n" for line in lines), visible(last)]
    return "\n".join(
        f"  {line[start : start + WIDTH]}" for line in shown for start in range(0, len(line), WIDTH)
    )


if __name__ == "__main__":
    sys.exit(main())
