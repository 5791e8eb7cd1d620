"""The section `data` of an experiment: its text, its tokenizer and its streams."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from data.corpora import CORPORA, SPLITS
from data.corpora.base import why_unreadable
from data.tokenizers import TOKENIZERS
from utils.validation import Section

if TYPE_CHECKING:
    CorpusName = str
    TokenizerName = str
else:
    CorpusName, TokenizerName = Literal[tuple(CORPORA)], Literal[tuple(TOKENIZERS)]


# Keys that change how a model learns and nothing of how it is scored.
_LEARNED_FROM = ("batch", "random_offset")
_REMEDIES = {
    "segment": "give data.evaluation_segment, the context in which tokens are scored, a number",
    "tokenizer": "give null for both cuts, data.validation_tokens and data.test_tokens",
}


class FilesConfig(Section):
    """Your own three text files."""

    train: str = Field(description="Path of the training text, relative to the current folder.")
    valid: str = Field(description="Path of the validation text.")
    test: str = Field(description="Path of the test text.")


class TreeConfig(Section):
    """A folder of text files."""

    folder: str = Field(description="Path of the folder, relative to the current one.")
    include: tuple[str, ...] = Field(
        min_length=1,
        description='Globs of files below it, e.g. "**/*.md"; ** is any number of folders. Hidden '
        "files, links, run folders and the cache are never read.",
    )
    exclude: tuple[str, ...] = Field(default=(), description="Globs of files to leave out.")


class TokenizerConfig(Section):
    """The tokenizer."""

    kind: TokenizerName = Field(
        default="bpe",
        description="bpe, unigram: SentencePiece trained on the training text (at most 100 MB, "
        "unigram 4 MB, spread evenly); bytes: the 256 bytes; given: your own SentencePiece model.",
    )
    vocabulary: int | None = Field(
        default=None,
        ge=300,
        description="Vocabulary size with <doc>, end of document (bpe, unigram; default 4096).",
    )
    lower_case: bool = Field(
        default=False,
        description="Lower-case all text first (bpe, unigram). Rules out bits per byte and word "
        "perplexity.",
    )
    model: str | None = Field(
        default=None,
        description="Path of the SentencePiece model (given), relative to the current folder. One "
        "that loses text is reported, and rules out bits per byte and word perplexity.",
    )

    @property
    def ids(self) -> int | None:
        """Number of ids; None where only a given model says."""
        return TOKENIZERS[self.kind].ids(self)

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> "TokenizerConfig":
        kind = TOKENIZERS[self.kind]
        if kind.needs is not None and getattr(self, kind.needs) is None:
            raise ValueError(f"{kind.needs}: kind {self.kind} needs it, found nothing")
        idle = [key for key in ("vocabulary", "lower_case", "model") if key not in kind.takes]
        self.refuse_idle(idle, f"kind {self.kind}")
        return self


class DataConfig(Section):
    """Corpus, tokenizer, training streams and evaluation streams."""

    corpus: CorpusName = Field(
        description="A built-in corpus; files: your three files; tree: your folder.",
    )
    files: FilesConfig | None = Field(default=None, description="Paths, for corpus: files.")
    tree: TreeConfig | None = Field(default=None, description="A folder, for corpus: tree.")
    tokenizer: TokenizerConfig = TokenizerConfig()
    batch: int = Field(default=16, ge=1, description="Batch size: streams read in parallel.")
    segment: int = Field(default=64, ge=1, description="Sequence length in tokens (tgt_len).")
    random_offset: bool = Field(
        default=False,
        description="Start each epoch at another position of the text (drawn from run.seed).",
    )
    evaluation_streams: int = Field(default=8, ge=1, description="Batch size of evaluations.")
    evaluation_segment: int | None = Field(
        default=None, ge=1, description="Sequence length of evaluations (default: segment)."
    )
    context_tokens: int = Field(
        default=0,
        ge=0,
        le=2**30,
        description="Tokens that each evaluation stream reads, unscored, before its part of the "
        "text; with 0 its memory begins empty. With window W in each of L attention blocks, L (W - "
        "1) give the result of a single stream (with token_shift one more for every block).",
    )
    validation_tokens: int | None = Field(
        default=None, ge=2, description="Read only the first N validation tokens (default: all)."
    )
    test_tokens: int | None = Field(
        default=None, ge=2, description="Read only the first N test tokens (default: all)."
    )

    def why_not_comparable(self, key: str) -> str | None:
        """Reason why runs with another value of a key of `data` would not be scored alike.

        Who may choose the text finds the easiest one.
        """
        name = key.partition(".")[0]
        # Where the scored text and its context are given apart, these two change neither.
        apart = {
            "segment": bool(self.evaluation_segment),
            "tokenizer": self.validation_tokens is None and self.test_tokens is None,
        }
        if name not in type(self).model_fields or name in _LEARNED_FROM or apart.get(name):
            return None
        return (
            "it decides which text is scored or in what context, and only results on the same can "
            f"be compared; {_REMEDIES.get(name, f'give data.{name} outside of sweep')}"
        )

    def missing_inputs(self, base: Path) -> list[tuple[tuple[str, ...], str]]:
        """The keys below `data` whose file or folder is not there, and why; no text is read."""
        inputs: list[tuple[tuple[str, ...], str | None, Literal["file", "folder"]]] = [
            (("tokenizer", "model"), self.tokenizer.model, "file")
        ]
        if self.files is not None:
            inputs += [(("files", split), getattr(self.files, split), "file") for split in SPLITS]
        if self.tree is not None:
            inputs.append((("tree", "folder"), self.tree.folder, "folder"))
        reasons = [
            (key, why_unreadable(base, path, ".".join(("data", *key)), kind))
            for key, path, kind in inputs
            if path is not None
        ]
        return [(key, why) for key, why in reasons if why is not None]

    @model_validator(mode="after")
    def _own_keys_fit_the_corpus(self) -> "DataConfig":
        needs = CORPORA[self.corpus].needs
        if needs is not None and getattr(self, needs) is None:
            raise ValueError(f"{needs}: corpus {needs} needs it, found nothing")
        idle = [key for key in ("files", "tree") if key != needs]
        self.refuse_idle(idle, f"corpus {self.corpus}")
        return self
