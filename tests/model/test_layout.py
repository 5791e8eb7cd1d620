"""Layouts as text, and which layouts are one network."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from model import (
    BLOCKS,
    Architecture,
    Candidate,
    Dropout,
    LanguageModel,
    Network,
    SoftmaxConfig,
    build_model,
    network_of,
    parse_layout,
)
from tests.model.tiny import D_MODEL, VOCABULARY, candidate, tokens

WIDE = candidate("dense", label="dense_wide")
CANDIDATES = [candidate("attention"), candidate("dense"), candidate("identity"), WIDE]


def test_letters_and_labels_name_candidates() -> None:
    said = {text: ["attention", "dense", "identity"] for text in ("a d i", "adi", " ad  i\n")}
    said |= {"attention dense_wide": ["attention", "dense_wide"]}
    said |= {"a dense_wide d": ["attention", "dense_wide", "dense"]}
    for text, labels in said.items():
        assert [made.label for made in parse_layout(text, CANDIDATES)] == labels


@pytest.mark.parametrize("name", ["d", "dense", "a", "attention", "x"])
def test_letters_stand_for_default_candidates_only(name: str) -> None:
    with pytest.raises(ValueError, match=rf"layout: position 1: '{name}' is none of dense_wide$"):
        parse_layout(name, [WIDE])


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
    with pytest.raises(ValueError, match="names no block"):
        parse_layout(text, CANDIDATES)


# Kinds with options of their own, and equal options under another label.
ALL = (
    candidate("attention"),
    candidate("attention", label="near", window=2),
    candidate("dense"),
    candidate("dense", label="wide", d_ffn=16),
    candidate("dense", label="dense_again"),
    candidate("identity"),
    candidate("identity", label="nothing"),
)
DROPOUT = Dropout(residual=0.2, attention=0.2, dense=0.2)
LAYOUTS = st.lists(st.sampled_from(ALL), min_size=1, max_size=5)


def nats_of(layout: list[Candidate], tie_blocks: int | None) -> tuple[float, float]:
    """What a model of seed 0 gives, and what it gives with dropout; float64."""
    torch.manual_seed(0)
    model = LanguageModel(
        [[slot] for slot in layout],
        d_model=D_MODEL,
        vocabulary_size=VOCABULARY,
        softmax=SoftmaxConfig(),
        dropout=DROPOUT,
        tie_blocks=tie_blocks,
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)  # as they were drawn, but large enough that every block matters
    ids_BT, target_BT = tokens(2, 6, seed=1), tokens(2, 6, seed=2)

    @torch.no_grad()
    def nats() -> float:
        h_BTD, _, _ = model(ids_BT, model.initial_state(2))
        return float(model.nll(h_BTD, target_BT).sum())

    torch.manual_seed(1)
    with_dropout = nats()
    model.eval()
    return nats(), with_dropout


@given(LAYOUTS, LAYOUTS, st.sampled_from([None, 1, 2, 3, 9]))
@settings(derandomize=True, max_examples=80, deadline=None)
def test_layouts_are_one_network_where_they_give_the_same_nats_and_nowhere_else(
    one: list[Candidate], two: list[Candidate], tie_blocks: int | None
) -> None:
    alike = network_of(one, tie_blocks) == network_of(two, tie_blocks)
    assert alike == (nats_of(one, tie_blocks) == nats_of(two, tie_blocks))


def parsed(letters: str) -> tuple[Candidate, ...]:
    return parse_layout(letters, ALL)


def test_examples() -> None:
    for one, two, tie_blocks, alike in (
        ("d i d i", "d d i i", None, True),
        ("d a i", "d i a", None, True),
        ("d a i", "a d i", None, False),
        ("d d i", "d i i", None, False),
        ("d d", "dense_again dense_again", None, True),
        ("d i d i", "d d i i", 2, False),
        ("d i d i", "d i d nothing", 2, True),
        ("d d i i", "i i d d", 2, True),
        # Every slot has weights of its own.
        ("d i d i", "d d i i", 4, True),
        # Labels say what is shared.
        ("d d", "d dense_again", 1, False),
    ):
        networks = [network_of(parsed(letters), tie_blocks) for letters in (one, two)]
        assert (networks[0] == networks[1]) == alike, (one, two, tie_blocks)


def architecture(letters: str) -> Architecture:
    return Architecture.model_validate(
        {
            "name": "x", "d_model": D_MODEL, "blocks": parsed(letters), "softmax": SoftmaxConfig(),
            "vocabulary_size": VOCABULARY, "tokenizer": {"digest": ""},
        }
    )  # fmt: skip


def test_an_architecture_keeps_its_layout_and_computes_its_network() -> None:
    one, two = architecture("d i d i"), architecture("d d i i")
    assert one.blocks != two.blocks
    assert one.network == two.network == Network((one.network.blocks[0],) * 2, (0, 1))
    assert "network" not in one.to_json()
    weights = []
    for each in (one, two):
        torch.manual_seed(3)
        weights.append(build_model(each).state_dict().values())
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_a_kind_that_adds_nothing_declares_it() -> None:
    for name, kind in BLOCKS.items():
        block = kind.block(candidate(name), D_MODEL, DROPOUT)
        assert kind.adds_nothing == block.adds_nothing
        assert not kind.adds_nothing or not list(block.parameters())
