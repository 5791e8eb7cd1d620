"""Scores of many texts are those of each text alone, read without anything kept."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from data import Tokenizer
from data.tokenizers.sentencepiece import load_given
from data.tokenizers.tokenizer import Bytes
from export.scoring import Row, pair_row, score
from model import LanguageModel
from tests.data.models import EXACT, given_model, ranked
from tests.model.tiny import candidate, language_model, tokens

SEGMENT = 4


def made() -> LanguageModel:
    slots = [[candidate("attention", memory=5)], [candidate("gated_delta")], [candidate("dense")]]
    return language_model(slots, cutoffs=(5, 11))


@torch.no_grad()
def log_probs(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    """Of each id but the first: log-probabilities (N, V) by one stream that keeps no keys."""
    state, parts = model.initial_state(1), []
    for part in torch.split(torch.tensor([list(ids[:-1])]), SEGMENT, dim=1):
        h_BTD, state, _ = model(part, state)
        parts.append(model.log_prob(h_BTD)[0])
    return torch.cat(parts)


def some_rows(model: LanguageModel) -> list[Row]:
    """Of many lengths; some begin alike, some score what is likeliest, one scores nothing."""
    shared = tokens(1, 14)[0].tolist()
    rows = [Row([*shared, *tokens(1, n, seed=n)[0].tolist()], 14) for n in (1, 2, 5, 9)]
    rows += [
        Row(tokens(1, n, seed=n)[0].tolist(), first) for n, first in ((2, 1), (9, 1), (30, 13))
    ]
    best = int(log_probs(model, [*shared, 0])[-1].argmax())
    rows += [Row([*shared, best], 14), Row([*shared, best, 0], 14), Row(shared, 14)]
    # Two that are scored from the first id of a segment on, and one that begins as no other.
    rows += [Row([*shared[:12], n], 12) for n in (1, 2)]
    return [*rows, Row([3, *shared[1:], 7], 9), Row([*shared[:9], 2], 9)]


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_rows_side_by_side_score_as_each_alone(batch: int) -> None:
    model = made()
    rows = some_rows(model)
    done: list[int] = []
    found = score(model, rows, segment=SEGMENT, batch=batch, done=done.append)
    assert sum(done) == len(rows) - 1
    for row, each in zip(rows, found, strict=True):
        log_p = log_probs(model, row.ids)[row.first - 1 :]
        target = torch.tensor(row.ids[row.first :], dtype=torch.int64)
        wanted = -log_p.gather(1, target[:, None])[:, 0]
        torch.testing.assert_close(each.nats, wanted, rtol=0, atol=1e-11)
        assert each.greedy == bool((log_p.argmax(-1) == target).all())
    assert len({each.greedy for each in found}) == 2
    nats = score(model, rows, segment=SEGMENT, batch=batch, greedy=False)
    assert all(torch.equal(one.nats, two.nats) for one, two in zip(found, nats, strict=True))


def test_what_rows_begin_with_is_read_once_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, read = made(), []
    others = [Row(tokens(1, 13, seed=seed)[0].tolist(), 9) for seed in (98, 99)]
    rows = [*some_rows(model)[:4], *others]
    forward = LanguageModel.forward

    def counted(self: LanguageModel, ids_BT: Tensor, *inputs: object, **options: object) -> object:
        read.append(tuple(ids_BT.shape))
        return forward(self, ids_BT, *inputs, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LanguageModel, "forward", counted)
    score(model, rows, segment=SEGMENT, batch=9)
    # 12 of the 14 common ids are whole segments; then up to 10 more of each row.
    assert read == [(1, 4)] * 3 + [(4, 4), (4, 4), (4, 2)] + [(2, 4)] * 3


BYTES = Tokenizer(Bytes())
PIECES = ranked(load_given(given_model(**EXACT, character_coverage=0.98)))
PAIRS = [
    ("def add(first,", " second)"), ("def add(first, ", "second)"), ("", "return"), ("", " fox"),
    ("fir", "st second"), ("a\n", "\nb"), ("caf", "\u00e9"), (" ", " "), ("first", ""), ("", ""),
]  # fmt: skip


@pytest.mark.parametrize("tokenizer", [BYTES, PIECES])
@pytest.mark.parametrize(("context", "continuation"), PAIRS)
def test_a_pair_is_the_text_as_a_whole_and_all_of_the_continuation_is_scored(
    tokenizer: Tokenizer, context: str, continuation: str
) -> None:
    row = pair_row(tokenizer, context, continuation)
    assert list(row.ids) == [tokenizer.doc_id, *tokenizer.encode(context + continuation)]
    known, scored = (
        tokenizer.decode(part) for part in (row.ids[: row.first], row.ids[row.first :])
    )
    assert context.startswith(known)
    assert scored.endswith(continuation)
    # And no more than the tokens that are cut otherwise for its sake.
    alone = [tokenizer.doc_id, *tokenizer.encode(context).tolist()]
    assert list(row.ids[: row.first]) == alone[: row.first]
    assert row.first == len(alone) or row.first == len(row.ids) or (
        row.ids[row.first] != alone[row.first]
    )  # fmt: skip
