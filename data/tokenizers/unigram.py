"""The `unigram` tokenizer: a unigram language model of pieces (Kudo 2018, arXiv 1804.10959)."""

from data.tokenizers.trained import trained_kind

NAME = "unigram"
# Its training takes about 3 seconds a megabyte on one CPU core, twenty times that of bpe.
KIND = trained_kind(NAME, sample_bytes=4_000_000)
