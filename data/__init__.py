"""Corpora, tokenizers, token files, training batches and exactly-once evaluation."""

from data.batching import (
    ContextBatches as ContextBatches,
    EvaluationBatch as EvaluationBatch,
    EvaluationStreams as EvaluationStreams,
)
from data.config import DataConfig as DataConfig, TokenizerConfig as TokenizerConfig
from data.corpora import (
    CORPORA as CORPORA,
    SPLITS as SPLITS,
    Corpus as Corpus,
    CorpusPaths as CorpusPaths,
    Split as Split,
    load_corpus as load_corpus,
)
from data.text import count_words as count_words
from data.tokenizers import (
    TOKENIZERS as TOKENIZERS,
    Tokenizer as Tokenizer,
    load_tokenizer as load_tokenizer,
    train_tokenizer as train_tokenizer,
)
from data.tokens import (
    Prepared as Prepared,
    TokenArray as TokenArray,
    encode_documents as encode_documents,
    prepare as prepare,
)
