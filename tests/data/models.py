"""A text, and SentencePiece models trained on it the ways that others train theirs."""

import io
from typing import Any

import numpy as np
import sentencepiece

from data import Tokenizer
from data.tokenizers import Scheme

TEXT = (
    "def add(first, second):\n    return first + second\n\n\n"
    "# The quick brown fox says <unk> and <doc> to 1234 lazy dogs \u2581 twice.\n"
    "class Fox:\r\n\tdef jump(self, dogs):\n        return self.over(dogs) # caf\u00e9\n"
)
# What makes SentencePiece lose nothing.
EXACT: dict[str, Any] = {
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
}
# The public PAR search trains on lines, lower-cased, with four special pieces.
REPOSITORY_A = {
    "normalization_rule_name": "nmt_nfkc_cf",
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": 2,
    "eos_id": 3,
}


def given_model(text: str = TEXT, **options: Any) -> bytes:
    """A serialised model; without options SentencePiece's own settings."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()),
        model_writer=model,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **{"vocab_size": 340 if options.get("byte_fallback") else 64, **options},
    )
    return model.getvalue()


def ranked(scheme: Scheme) -> Tokenizer:
    """Ranked by the counts of TEXT."""
    unranked = Tokenizer(scheme)
    ids = [unranked.doc_id, *unranked.encode(TEXT * 3).tolist()]
    return unranked.reranked(np.bincount(ids, minlength=unranked.vocabulary_size))[0]
