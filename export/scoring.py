"""The log-likelihood of many texts, each read once from its first token on.

A row is cut into segments of T tokens from its beginning, as an evaluation of the model cuts its
text, and keys and values are carried from one to the next: a row of any length is read in full.

B rows side by side   T tokens of a segment   N tokens of a row   D d_model
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from data import Tokenizer, encode_documents
from model import LanguageModel, StreamState

# Tokens of a pass that reads several segments: products of a few rows are slow.
MOST_TOKENS = 1024


@dataclass(frozen=True)
class Row:
    """Ids of which those from place `first` on are scored; 1 at least, and below their number."""

    ids: Sequence[int]
    first: int


@dataclass(frozen=True)
class Score:
    """Nats of each scored id (float64), and whether each was the likeliest."""

    nats: Tensor
    greedy: bool


def pair_row(tokenizer: Tokenizer, context: str, continuation: str) -> Row:
    """A row that scores what follows a context; an empty one is the beginning of a document.

    The text is encoded as a whole. Where a token spans the border of the two, or the context alone
    would be cut otherwise, what differs counts to the continuation.
    """
    ids = encode_documents(tokenizer, [context + continuation]).tolist()
    alone = encode_documents(tokenizer, [context]).tolist() if context else [tokenizer.doc_id]
    same = next((i for i, (a, b) in enumerate(zip(ids, alone, strict=False)) if a != b), None)
    return Row(ids, min(len(ids), len(alone)) if same is None else same)


@torch.inference_mode()
def score(
    model: LanguageModel,
    rows: Sequence[Row],
    *,
    segment: int,
    batch: int,
    greedy: bool = True,
    done: Callable[[int], object] = lambda rows: None,
) -> list[Score]:
    """Score rows, `batch` of them side by side; each as if it were alone.

    What several rows begin with is read once for all of them, by whole segments. Without `greedy`
    nobody asks for the likeliest ids, and tails of the softmax that no id lies in cost nothing.
    """
    found: list[Score] = [Score(torch.zeros(0, dtype=torch.float64), True) for _ in rows]
    for beginning, places in _by_beginning(rows, segment).items():
        known = model.initial_state(1, cached=True)
        if beginning:
            *_, (_, known) = _read(model, torch.tensor([beginning]), known, segment)
        # Rows of one length side by side; the longest first, so that memory fails at once.
        places.sort(key=lambda place: -len(rows[place].ids))
        for begin in range(0, len(places), batch):
            taken = places[begin : begin + batch]
            chosen = [rows[place] for place in taken]
            scores = _score_batch(model, chosen, len(beginning), known, segment, greedy)
            for place, each in zip(taken, scores, strict=True):
                found[place] = each
            done(len(taken))
    return found


def _by_beginning(rows: Sequence[Row], segment: int) -> dict[tuple[int, ...], list[int]]:
    """Places of rows by the segments before what is scored, where several have the same."""
    beginnings = [tuple(row.ids[: (row.first - 1) // segment * segment]) for row in rows]
    times = Counter(beginnings)
    places: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, (row, beginning) in enumerate(zip(rows, beginnings, strict=True)):
        if row.first < len(row.ids):
            places[beginning if times[beginning] > 1 else ()].append(place)
    return places


def _read(
    model: LanguageModel, ids_BN: Tensor, state: StreamState, segment: int
) -> Iterator[tuple[Tensor, StreamState]]:
    """Yield hidden states and what streams carry, for some segments at a time."""
    tokens = min(model.longest_memory // 4, MOST_TOKENS // ids_BN.shape[0])
    for part_BN in torch.split(ids_BN, segment * max(1, tokens // segment), dim=1):
        h_BND, state, _ = model(part_BN, state, chunk=segment)
        yield h_BND, state


def _score_batch(
    model: LanguageModel,
    rows: Sequence[Row],
    known: int,
    state: StreamState,
    segment: int,
    greedy: bool,
) -> list[Score]:
    """Scores of rows whose first `known` ids are in the state of one stream."""
    length = max(len(row.ids) for row in rows) - known
    # Behind a row's end anything may stand, since no token sees a later one.
    ids_BN = torch.stack(
        [F.pad(torch.tensor(row.ids[known:]), (0, length - len(row.ids) + known)) for row in rows]
    )
    place_N = torch.arange(known + 1, known + length)
    is_scored_BN = torch.stack([(place_N >= row.first) & (place_N < len(row.ids)) for row in rows])
    # The cache holds something for each length of a pass.
    joined = replace(StreamState.join([state] * len(rows)), cache={})
    nats, is_best, start = [], [], 0
    for h_BND, _ in _read(model, ids_BN[:, :-1], joined, segment):
        part = slice(start, start + h_BND.shape[1])
        start = part.stop
        target_BN, scored_BN = ids_BN[:, 1:][:, part], is_scored_BN[:, part]
        nats_BN, best_BN = _of_targets(model, h_BND, target_BN, scored_BN, greedy)
        nats.append(nats_BN)
        is_best.append(best_BN)
    nats_BN, best_BN = torch.cat(nats, dim=1), torch.cat(is_best, dim=1)
    return [
        Score(nats_N[scored_N], bool(best_N[scored_N].all()))
        for nats_N, best_N, scored_N in zip(nats_BN, best_BN, is_scored_BN, strict=True)
    ]


def _of_targets(
    model: LanguageModel, h_BND: Tensor, target_BN: Tensor, scored_BN: Tensor, greedy: bool
) -> tuple[Tensor, Tensor]:
    """Nats of the scored targets, 0 elsewhere, and which are the likeliest; on the CPU."""
    nats_BN = torch.zeros(target_BN.shape, dtype=torch.float64)
    best_BN = torch.ones(target_BN.shape, dtype=torch.bool)
    if scored_BN.any():
        h_RD, target_R = h_BND[scored_BN.to(h_BND.device)], target_BN[scored_BN]
        nats_BN[scored_BN] = model.nll(h_RD[None], target_R[None])[0].double().cpu()
        if greedy:
            best_BN[scored_BN] = model.log_prob(h_RD[None])[0].argmax(-1).cpu() == target_R
    return nats_BN, best_BN
