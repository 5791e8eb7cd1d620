"""The answers of the recall tasks by plain reading, and how trainings are counted."""

from collections.abc import Iterator

import torch

from benchmarks.recall_tasks import COPIED, SYMBOLS, TASKS

BATCH, LENGTH = 16, 24


def rows_of(task: str) -> Iterator[tuple[list[int], list[int], list[bool]]]:
    """Inputs, targets and which are answers, of each sequence of a batch."""
    drawn = TASKS[task](BATCH, LENGTH, torch.Generator().manual_seed(3))
    return zip(*(part.tolist() for part in vars(drawn).values()), strict=True)


def test_in_context_recall_asks_for_the_value_that_the_key_had() -> None:
    answers = 0
    for inputs, targets, is_answer in rows_of("in-context recall"):
        values: dict[int, int] = {}
        for at, (token, target) in enumerate(zip(inputs, targets, strict=True)):
            is_key = at % 2 == 0
            assert (token < SYMBOLS) == is_key
            assert is_answer[at] == (is_key and token in values)
            if is_key:
                assert values.setdefault(token, target) == target
        answers += sum(is_answer)
    assert answers > 0.1 * BATCH * LENGTH


def test_selective_copy_asks_for_the_symbols_in_their_order() -> None:
    places = set()
    for inputs, targets, is_answer in rows_of("selective copy"):
        symbols = [token for token in inputs if token < SYMBOLS]
        places.add(tuple(at for at, token in enumerate(inputs) if token < SYMBOLS))
        assert len(symbols) == COPIED
        assert [token for token, asked in zip(targets, is_answer, strict=True) if asked] == symbols
        assert is_answer == [False] * (LENGTH - COPIED) + [True] * COPIED
        assert inputs[-COPIED:] == [SYMBOLS + 1] * COPIED
    assert len(places) > BATCH // 2
