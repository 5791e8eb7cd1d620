"""The section `data` of an experiment: its text, its tokenizer and its streams."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from data.corpora import CORPORA, SPLITS
from data.corpora.base import why_unreadable
from data.tokenizers import TOKENIZERS
from utils.validation import Section, must_be_one_of


class FilesConfig(Section):
    """The user's own three text files."""

    train: str = Field(description="Path of the training text, relative to the current folder.")
    valid: str = Field(description="Path of the validation text.")
    test: str = Field(description="Path of the test text.")


class TreeConfig(Section):
    """A folder of text files."""

    folder: str = Field(description="The folder, relative to the current one.")
    include: tuple[str, ...] = Field(
        min_length=1,
        description='Globs of relative paths, for example "**/*.md"; ** is any number of folders. '
        "Hidden files, links, run folders and the cache are left out.",
    )
    exclude: tuple[str, ...] = Field(default=(), description="Globs of what to leave out.")


class TokenizerConfig(Section):
    """Choice of the tokenizer that makes ids of text."""

    kind: str = Field(
        default="bpe",
        json_schema_extra={"enum": list[Any](TOKENIZERS)},
        description="bpe, unigram: SentencePiece trained on the training text (unigram on at most "
        "4 MB of it, evenly spread); bytes: 256 ids; given: a SentencePiece model of your own.",
    )
    vocabulary: int | None = Field(
        default=None,
        ge=300,
        description="Number of ids with <doc> (bpe and unigram; default 4096).",
    )
    lower_case: bool = Field(
        default=False,
        description="Lower-case all text first (bpe and unigram). It is lost, so neither bits per "
        "byte nor word perplexity is reported.",
    )
    model: str | None = Field(
        default=None,
        description="Path of the SentencePiece model for kind: given, relative to the current "
        "folder. One that loses text is said to, and neither bits per byte nor word perplexity is "
        "reported.",
    )

    @field_validator("kind")
    @classmethod
    def _kind_is_registered(cls, name: str) -> str:
        if name not in TOKENIZERS:
            raise ValueError(must_be_one_of(name, list(TOKENIZERS)))
        return name

    @property
    def ids(self) -> int | None:
        """Number of ids; None where only a given model says."""
        return TOKENIZERS[self.kind].ids(self)

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> "TokenizerConfig":
        kind = TOKENIZERS[self.kind]
        if kind.needs is not None and getattr(self, kind.needs) is None:
            raise ValueError(f"{kind.needs}: kind {self.kind} needs it, found nothing")
        for key in ("vocabulary", "lower_case", "model"):
            value = getattr(self, key)
            if value not in (None, False) and key not in kind.takes:
                raise ValueError(f"{key}: has no effect with kind {self.kind}; leave it out")
        return self


class DataConfig(Section):
    """Corpus, tokenizer, training streams and evaluation streams."""

    corpus: str = Field(
        description="Name of a registered corpus.",
        json_schema_extra={"enum": list[Any](CORPORA)},
    )
    files: FilesConfig | None = Field(default=None, description="Paths, for corpus: files.")
    tree: TreeConfig | None = Field(default=None, description="A folder, for corpus: tree.")
    tokenizer: TokenizerConfig = TokenizerConfig()
    batch: int = Field(default=16, ge=1, description="Training streams read side by side.")
    segment: int = Field(default=64, ge=1, description="Tokens of each stream in one step.")
    random_offset: bool = Field(
        default=False,
        description="Every epoch begins at another place of the training text (by run.seed).",
    )
    evaluation_streams: int = Field(default=8, ge=1, description="Streams of an evaluation pass.")
    evaluation_segment: int | None = Field(
        default=None, ge=1, description="Tokens per evaluation step (default: segment)."
    )
    context_tokens: int = Field(
        default=0,
        ge=0,
        le=2**30,
        description="Unscored tokens before each evaluation stream's interval. Without them a "
        "stream begins with an empty memory; with windows of W in L attention slots, L (W - 1) "
        "give the figure of a single stream.",
    )
    validation_tokens: int | None = Field(
        default=None, ge=2, description="Only the first so many validation tokens (default: all)."
    )
    test_tokens: int | None = Field(
        default=None, ge=2, description="Only the first so many test tokens (default: all)."
    )

    @field_validator("corpus")
    @classmethod
    def _corpus_is_registered(cls, name: str) -> str:
        if name not in CORPORA:
            raise ValueError(must_be_one_of(name, list(CORPORA)))
        return name

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
        if needs == "files" and self.files is None:
            raise ValueError("files: corpus files needs train, valid and test paths")
        if needs == "tree" and self.tree is None:
            raise ValueError("tree: corpus tree needs a folder and include")
        for key in ("files", "tree"):
            if getattr(self, key) is not None and key != needs:
                raise ValueError(
                    f"{key}: has no effect with corpus {self.corpus}; leave it out or give null"
                )
        return self
