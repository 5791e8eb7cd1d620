"""The answers of the recall tasks by plain reading, and how trainings are counted."""

import pytest
import torch

from benchmarks.recall import lines_of, trained
from benchmarks.recall_tasks import CHANCE, COPIED, SYMBOLS, TASKS, VOCABULARY, Examples

BATCH, LENGTH = 16, 24


def examples(task: str) -> Examples:
    return TASKS[task](BATCH, LENGTH, torch.Generator().manual_seed(3))


def test_in_context_recall_asks_for_the_value_that_the_key_had() -> None:
    drawn = examples("in-context recall")
    rows = zip(*(part.tolist() for part in vars(drawn).values()), strict=True)
    for inputs, targets, is_answer in rows:
        values: dict[int, int] = {}
        for at, (token, target) in enumerate(zip(inputs, targets, strict=True)):
            is_key = at % 2 == 0
            assert (token < SYMBOLS) == is_key
            assert is_answer[at] == (is_key and token in values)
            if is_key:
                assert values.setdefault(token, target) == target
    assert drawn.is_answer_BT.float().mean() > 0.1


def test_selective_copy_asks_for_the_symbols_in_their_order() -> None:
    rows = zip(*(part.tolist() for part in vars(examples("selective copy")).values()), strict=True)
    places = set()
    for inputs, targets, is_answer in rows:
        symbols = [token for token in inputs if token < SYMBOLS]
        places.add(tuple(at for at, token in enumerate(inputs) if token < SYMBOLS))
        assert len(symbols) == COPIED
        assert [token for token, asked in zip(targets, is_answer, strict=True) if asked] == symbols
        assert is_answer == [False] * (LENGTH - COPIED) + [True] * COPIED
        assert inputs[-COPIED:] == [SYMBOLS + 1] * COPIED
    assert len(places) > BATCH // 2


@pytest.mark.parametrize("task", TASKS)
def test_batches_go_on_differently_and_the_last_token_says_nothing_of_the_answer(task: str) -> None:
    generator = torch.Generator().manual_seed(0)
    drawn, other = (TASKS[task](4096, 32, generator) for _ in range(2))
    assert not torch.equal(drawn.input_BT, other.input_BT)
    assert int(drawn.input_BT.max()) < VOCABULARY
    last, answer = (part[drawn.is_answer_BT] for part in (drawn.input_BT, drawn.target_BT))
    for token in last.unique():
        answers = answer[last == token]
        shares = answers.bincount(minlength=VOCABULARY) / len(answers)
        assert shares.max() < CHANCE + 0.02


def test_a_training_stops_at_its_last_step_and_trainings_that_learn_are_counted() -> None:
    row = trained("selective copy", "ad", 1e-3, 0, 3)
    assert (row["steps"], row["steps_to_95"]) == ("3", "")
    rows = [
        {"task": "copy", "layout": "a", "accuracy": right, "steps_to_95": steps}
        for right, steps in (("0.98", "700"), ("0.5", ""), ("0.99", "300"))
    ]
    line = [*lines_of(rows)][-1]
    for words in ("best  99.0%", "median  98.0%", "2 of 3 trainings learn it", "after 300 steps"):
        assert words in line
