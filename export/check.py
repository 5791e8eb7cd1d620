"""An exported graph beside the model: the same log-probabilities, and nats on a text.

B batch   T segment length   V vocabulary
"""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data import EvaluationStreams, Tokenizer, encode_documents
from data.text import to_utf8_text
from export.graph import Memories
from export.source import Source
from utils.files import check_is_file

Run = Callable[[Tensor, Memories], tuple[Tensor, Memories]]
Zeros = Callable[[int], Memories]

MOST_NATS = 1e-4
# Streams, and the lengths of the segments that they read one after the other.
CASES = ((1, (5, 17, 1)), (3, (17, 1, 5)))
DRAWS = 3
STREAMS, SEGMENT = 8, 64
# Log-probabilities that a pass makes at once.
_MOST_NUMBERS = 2**26


def check_program(run: Run, source: Source, zeros: Zeros) -> float:
    """How far a graph is from the model at most, over the segments of `CASES`.

    ValueError: it is further than `MOST_NATS` for each of several draws of ids. With one draw alone
    a choice, of an expert or a cluster, may fall otherwise where two are equal but for rounding.
    """
    differences = []
    for draw in range(DRAWS):
        differences.append(_difference(run, source, zeros, draw))
        if differences[-1] <= MOST_NATS:
            return differences[-1]
    raise ValueError(
        f"{source.folder}: the exported graph differs from the model by {min(differences):.2g} "
        f"nats, and at most {MOST_NATS:g} is rounding; nothing was written"
    )


@torch.no_grad()
def _difference(run: Run, source: Source, zeros: Zeros, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    words, model, worst = source.architecture.vocabulary_size, source.model, 0.0
    if model.softmax.head.dtype != torch.float32:
        model = copy.deepcopy(model).float()
    for batch, lengths in CASES:
        memories, state = zeros(batch), model.initial_state(batch, cached=True)
        for length in lengths:
            ids_BT = torch.randint(words, (batch, length), generator=generator)
            log_prob_BTV, memories = run(ids_BT, memories)
            h_BTD, state, _ = model(ids_BT, state)
            difference = (log_prob_BTV - model.log_prob(h_BTD)).abs().max()
            # A nan is further away than any number.
            worst = max(worst, float(difference.nan_to_num(nan=torch.inf)))
    return worst


def tokens_of(files: Sequence[Path], tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The ids of texts, each a document; ValueError where one is no file, empty or no UTF-8."""
    for path in files:
        check_is_file(path)
    texts = [to_utf8_text(path.read_bytes(), str(path)) for path in files]
    return encode_documents(tokenizer, texts)


def nats_per_token(run: Run, tokens: NDArray[np.int64], zeros: Zeros, words: int) -> float:
    """The mean over all tokens but the first, each scored once, in streams and segments."""
    segment = max(1, min(SEGMENT, _MOST_NUMBERS // (STREAMS * words)))
    streams = EvaluationStreams(tokens, streams=STREAMS, segment=segment)
    memories, nats = zeros(streams.streams), 0.0
    for batch in streams:
        log_prob_BTV, memories = run(batch.input_BT, memories)
        nll_BT = -log_prob_BTV.gather(-1, batch.target_BT[..., None])[..., 0]
        nats += float(nll_BT.double()[batch.score_BT].sum())
    return nats / streams.scored
