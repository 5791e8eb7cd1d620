"""The `bytes` tokenizer: 256 bytes and `<doc>`."""

import numpy as np

from data.text import to_bytes
from data.tokenizers.tokenizer import IdArray, Scheme, TokenizerKind


class Bytes(Scheme):
    """One id a byte."""

    kind = "bytes"
    source_bytes = (*(bytes([byte]) for byte in range(256)), b"")
    source_doc = 256

    def encode(self, text: str) -> IdArray:
        """The bytes themselves."""
        return np.frombuffer(to_bytes(text), dtype=np.uint8).astype(np.int64)


KIND = TokenizerKind(
    make=lambda config, texts, base: Bytes(),
    load=lambda model, lower_case: Bytes(),
    key=lambda config, base: {},
    ids=lambda config: len(Bytes.source_bytes),
    saves_model=False,
)
