"""What counts as a word."""

import pytest

from data import count_words


@pytest.mark.parametrize(
    ("text", "words", "plain"),
    [
        ("", 0, 0),
        ("one", 1, 1),
        (" \n = One = \n \n one , two . \n", 11, 7),
        ("two words\r\nand\ttwo more \n\n", 8, 5),
        ("no-break\u00a0space", 2, 2),
        ("\n\n", 2, 0),
        ("   ", 0, 0),
    ],
)
def test_words_stand_between_white_space_and_an_end_of_line_is_one(
    text: str, words: int, plain: int
) -> None:
    assert count_words(text) == words
    assert count_words(text, line_ends=False) == plain
