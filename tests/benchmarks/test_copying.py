"""Which targets can be copied, by plain reading, and that groups add up to the evaluation."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.copying import (
    GROUPS,
    groups_of,
    in_memory,
    nats_by_group,
    pair_counts,
)  # fmt: skip
from data import EvaluationStreams
from tests import tiny
from training.evaluation import evaluate

WINDOW = 6


def drawn(count: int, ids: int) -> np.ndarray:
    return np.random.default_rng(4).integers(ids, size=count)


def test_pairs_are_looked_for_among_the_last_inputs_alone_and_counted_as_they_stand() -> None:
    tokens = drawn(200, 5)
    input_T, target_T = tokens[:-1], tokens[1:]
    wanted = []
    for at in range(len(input_T)):
        seen = input_T[max(0, at - WINDOW + 1) : at + 1].tolist()
        wanted.append((input_T[at], target_T[at]) in [*pairwise(seen)])
    assert in_memory(input_T, target_T, WINDOW).tolist() == wanted
    assert 0 < sum(wanted) < len(wanted)
    pairs, (first, second) = [*pairwise(tokens.tolist())], np.meshgrid(np.arange(8), np.arange(8))
    each = zip(first.ravel().tolist(), second.ravel().tolist(), strict=True)
    counts = pair_counts(tokens, first, second).ravel().tolist()
    assert counts == [pairs.count(pair) for pair in each]


def test_groups_share_out_what_the_evaluation_scores() -> None:
    model = tiny.language_model([[slot] for slot in tiny.candidates("attention", "dense")]).eval()
    tokens = drawn(120, tiny.VOCABULARY)
    streams = EvaluationStreams(tokens, streams=3, segment=7, context=4)
    group_BT = groups_of(streams, drawn(400, tiny.VOCABULARY), WINDOW)
    counts = [int((group_BT == group).sum()) for group in range(len(GROUPS))]
    assert sum(counts) == streams.scored
    nats = nats_by_group(model, streams, group_BT)
    whole = evaluate(model, streams, byte_length_V=None, device=torch.device("cpu"))
    assert np.dot(nats, counts) == pytest.approx(whole.nats, rel=1e-6)
