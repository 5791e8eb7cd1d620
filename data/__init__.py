"""Corpora, tokenizers, token files, training batches and exactly-once evaluation."""

from data.batching import ContextBatches, EvaluationBatch, EvaluationStreams
from data.config import DataConfig, TokenizerConfig
from data.corpora import CORPORA, SPLITS, Corpus, CorpusPaths, Split, load_corpus
from data.text import count_words
from data.tokenizers import TOKENIZERS, Tokenizer, load_tokenizer, train_tokenizer
from data.tokens import Prepared, TokenArray, encode_documents, prepare

__all__ = [
    "CORPORA",
    "SPLITS",
    "TOKENIZERS",
    "ContextBatches",
    "Corpus",
    "CorpusPaths",
    "DataConfig",
    "EvaluationBatch",
    "EvaluationStreams",
    "Prepared",
    "Split",
    "TokenArray",
    "Tokenizer",
    "TokenizerConfig",
    "count_words",
    "encode_documents",
    "load_corpus",
    "load_tokenizer",
    "prepare",
    "train_tokenizer",
]
