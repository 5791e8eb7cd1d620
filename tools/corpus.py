"""Show what a corpus and its tokenizer are: sizes, tokens, overlap, losses, the first words.

Downloads, trains the tokenizer and encodes the text where that has not been done; search.py then
finds it done.

    python -m tools.corpus configs/quickstart.yaml
    python -m tools.corpus configs/quickstart.yaml --set data.tokenizer.kind=unigram
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import cli
from utils.text import aligned, visible

if TYPE_CHECKING:
    from data import Corpus, Prepared
    from pipeline.experiment import Experiment

HEAD_CHARACTERS, HEAD_PIECES, WIDTH = 500, 48, 100
Row = Sequence[str]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.parser(__doc__, writes=False)
    parser.prog = "python -m tools.corpus"
    arguments = parser.parse_args(argv)
    with cli.user_errors():
        from pipeline.experiment import experiment_of

        experiment, run_dir = experiment_of(arguments)
        if arguments.check:
            return cli.checked(arguments.experiment)
        text = page(experiment, run_dir)
    # Text may hold characters that this terminal or pipe cannot write.
    sys.stdout.buffer.write((text + "\n").encode(sys.stdout.encoding, errors="backslashreplace"))
    sys.stdout.flush()
    return 0


def page(experiment: "Experiment", run_dir: Path) -> str:
    """The whole page; the text is the one that a run in this directory reads."""
    from data import load_corpus, prepare_corpus
    from pipeline.run_files import run_folders
    from pipeline.summary import tokenizer_line
    from utils.screen import say

    whole = experiment.data.model_copy(update={"validation_tokens": None, "test_tokens": None})
    corpus = load_corpus(whole, Path.cwd(), progress=say, is_run=run_folders(run_dir))
    prepared = prepare_corpus(corpus, whole, Path.cwd(), progress=say)
    parts = [
        f"corpus: {corpus.name}\ndigest: {corpus.digest}",
        "\n".join(aligned(list(split_rows(prepared)), 1)),
        "\n".join(overlap_lines(prepared.notes)),
        f"{tokenizer_line(prepared.tokenizer, prepared.notes)}\n"
        f"vocabulary: {prepared.tokenizer.vocabulary_size} ids with <doc>; "
        f"digest {prepared.tokenizer.digest}",
    ]
    if clusters := list(cluster_rows(experiment, prepared)):
        parts.append("\n".join(aligned(clusters, 1)))
    if lines := [*reading_lines(experiment, prepared)]:
        parts.append("\n".join(lines))
    parts.append("the training text begins:\n" + head(corpus))
    parts.append("and becomes:\n" + pieces(prepared))
    return "\n\n".join(parts)


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


def overlap_lines(notes: dict[str, Any]) -> Iterator[str]:
    """Shares of the held-out text that stand in the training text."""
    for split, share in notes["lines_found_in_train"].items():
        least = f"lines of {share['at_least_characters']}+ characters"
        yield (
            f"{split}: no {least}, so whether it stands in the training text cannot be told"
            if not share["lines"]
            else f"{split}: {share['found']:,} of {share['lines']:,} {least} "
            f"({share['share']:.1%}) stand word for word in the training text"
        )


def reading_lines(experiment: "Experiment", prepared: "Prepared") -> Iterator[str]:
    """Passes of each phase over the training text, and what makes figures say little."""
    from data import ContextBatches
    from pipeline.summary import passes_line, text_warnings
    from training.config import steps_in
    from training.optim import stages_of

    data, search = experiment.data, experiment.search
    try:
        batches = ContextBatches(prepared.tokens["train"], batch=data.batch, segment=data.segment)
    except ValueError as error:  # the text is shown all the same
        yield f"warning: {error}"
        return
    steps = steps_in(search.steps, search.epochs, batches.per_epoch)
    yield f"search: {passes_line(steps, batches)}"
    steps = stages_of(experiment.retrain, batches.per_epoch).steps
    yield f"retrain: {passes_line(steps, batches)}"
    yield from text_warnings(prepared, batches)


def cluster_rows(experiment: "Experiment", prepared: "Prepared") -> Iterator[Row]:
    """One row per cluster of an adaptive softmax: its ids, and its part of the training tokens."""
    from pipeline.plan import cluster_mass, softmax_of

    softmax = softmax_of(experiment.model, experiment.data, prepared)
    vocabulary = prepared.tokenizer.vocabulary_size
    softmax.check_vocabulary(vocabulary)
    if not softmax.cutoffs:
        return
    yield "cluster", "ids", "of the training tokens"
    masses = cluster_mass(prepared.counts_V, softmax.cutoffs)
    bounds = pairwise((0, *softmax.cutoffs, vocabulary))
    for index, ((low, high), mass) in enumerate(zip(bounds, masses, strict=True)):
        yield f"tail {index}" if index else "head", f"{high - low:,}", f"{mass:.1%}"


def head(corpus: "Corpus") -> str:
    """The beginning of the first training document, with what cannot be seen made visible."""
    *lines, last = next(corpus.documents("train")).text[:HEAD_CHARACTERS].split("\n")
    shown = [*(visible(line) + "\\n" for line in lines), visible(last)]
    return "\n".join(
        f"  {line[start : start + WIDTH]}" for line in shown for start in range(0, len(line), WIDTH)
    )


def pieces(prepared: "Prepared") -> str:
    """The first tokens, each in quotes."""
    tokenizer = prepared.tokenizer
    ids = prepared.tokens["train"][:HEAD_PIECES].tolist()
    shown = [
        "<doc>"
        if i == tokenizer.doc_id
        else f"'{visible(tokenizer.decode_bytes([i]).decode(errors='surrogateescape'))}'"
        for i in ids
    ]
    lines = [""]
    for piece in shown:
        if len(lines[-1]) + len(piece) > WIDTH:
            lines.append("")
        lines[-1] += f" {piece}"
    return "\n".join(f" {line}" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
