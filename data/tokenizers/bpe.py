"""The `bpe` tokenizer: byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909)."""

from data.tokenizers.trained import trained_kind

NAME = "bpe"
# SentencePiece holds its training text in memory and counts every pair in it.
KIND = trained_kind(NAME, sample_bytes=100_000_000)
