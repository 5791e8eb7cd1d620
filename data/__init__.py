"""Corpora, tokenizers, token files, training batches and exactly-once evaluation."""

from data.batches import Batch, ContextBatches
from data.config import DataConfig, FilesConfig, TokenizerConfig, TreeConfig
from data.corpora import CORPORA, SPLITS, Corpus, Document, Split, load_corpus
from data.evaluation import EvaluationBatch, EvaluationStreams
from data.tokenizers import (
    TOKENIZERS,
    Tokenizer,
    known_losses,
    load_tokenizer,
    train_tokenizer,
)
from data.tokens import (
    Prepared,
    TokenArray,
    encode_documents,
    prepare,
    prepare_corpus,
    scored_bytes,
)
from data.words import count_words

__all__ = [
    "CORPORA",
    "SPLITS",
    "TOKENIZERS",
    "Batch",
    "ContextBatches",
    "Corpus",
    "DataConfig",
    "Document",
    "EvaluationBatch",
    "EvaluationStreams",
    "FilesConfig",
    "Prepared",
    "Split",
    "TokenArray",
    "Tokenizer",
    "TokenizerConfig",
    "TreeConfig",
    "count_words",
    "encode_documents",
    "known_losses",
    "load_corpus",
    "load_tokenizer",
    "prepare",
    "prepare_corpus",
    "scored_bytes",
    "train_tokenizer",
]
