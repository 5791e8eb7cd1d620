"""Layouts as text."""

import pytest

from model import parse_layout
from tests.model.tiny import candidate

WIDE = candidate("dense", label="dense_wide")
CANDIDATES = [candidate("attention"), candidate("dense"), candidate("identity"), WIDE]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a d i", ["attention", "dense", "identity"]),
        ("adi", ["attention", "dense", "identity"]),
        (" ad  i\n", ["attention", "dense", "identity"]),
        ("attention dense_wide", ["attention", "dense_wide"]),
        ("a dense_wide d", ["attention", "dense_wide", "dense"]),
    ],
)
def test_letters_and_labels_name_candidates(text: str, labels: list[str]) -> None:
    assert [made.label for made in parse_layout(text, CANDIDATES)] == labels


def test_a_label_made_of_letters_is_that_label() -> None:
    made = parse_layout("ad a", [*CANDIDATES, candidate("dense", label="ad")])
    assert [choice.label for choice in made] == ["ad", "attention"]


def test_letters_stand_for_default_candidates_only() -> None:
    with pytest.raises(ValueError, match=r"layout: position 1: 'd' is none of dense_wide$"):
        parse_layout("d", [WIDE])


def test_every_unknown_position_is_named() -> None:
    with pytest.raises(ValueError, match="position 2: 'x'") as raised:
        parse_layout("a x d nope", CANDIDATES)
    assert str(raised.value).splitlines() == [
        f"layout: position {position}: {name!r} is none of "
        "a (attention), d (dense), i (identity), dense_wide"
        for position, name in ((2, "x"), (4, "nope"))
    ]


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_layout_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no slot"):
        parse_layout(text, CANDIDATES)
