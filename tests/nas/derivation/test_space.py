"""The networks of an experiment's candidates within limits, against all layouts one by one."""

import itertools
from typing import Any

import numpy as np
import pytest

from model import Candidate
from nas.costs.budget import LayoutCost, Limit
from nas.derivation import space as layout_spaces
from nas.derivation.base import Request
from nas.derivation.config import DeriveConfig
from nas.derivation.space import layout_space
from nas.derivation.training import NONE, Space
from tests import tiny

COST = LayoutCost(
    "flops", {"attention": 3.0, "dense": 2.0, "identity": 0.0, "wide": 4.0, "short_conv": 2.0}, 1.0
)


def request(slots: int, most: float | None = None, *labels: str, **options: Any) -> Request:
    candidates = tiny.candidates(*(labels or ("attention", "dense", "identity")))
    limits = () if most is None else (Limit(COST, most),)
    return Request(DeriveConfig(), candidates, slots, COST, limits=limits, **options)


def networks_of(asked: Request) -> set[object]:
    """Every network that keeps the limits and has a block, from every layout."""
    every = itertools.product(range(len(asked.candidates)), repeat=asked.slots)
    of = asked.networks.of
    return {of(choice) for choice in every if asked.allowed(choice) and of(choice).order}


@pytest.mark.parametrize("labels", [("attention", "dense", "identity"), ("dense", "attention")])
@pytest.mark.parametrize("tie_blocks", [None, 2])
@pytest.mark.parametrize("most", [None, 7.0, 10.5])
def test_every_network_within_the_limits_comes_once(
    labels: tuple[str, ...], tie_blocks: int | None, most: float | None
) -> None:
    asked = request(5 if most is None else 4, most, *labels, tie_blocks=tie_blocks)
    expected = networks_of(asked)
    if not expected:
        with pytest.raises(ValueError, match=r"no layout is within derive\.budget"):
            layout_space(asked)
        return
    listed = layout_space(asked)
    numbers = [[asked.candidates.index(slot) for slot in layout] for layout in listed.layouts]
    networks = [asked.networks.of(tuple(choice)) for choice in numbers]
    assert len(set(networks)) == len(networks)
    assert set(networks) == expected
    for row_L, layout, flops in zip(listed.kind_NL, listed.layouts, listed.flops_N, strict=True):
        blocks = [slot.label for slot in layout if slot.label != "identity"]
        assert [listed.kinds[k] for k in row_L if k != NONE] == blocks
        assert flops == COST(layout)
    assert listed.kinds[-1] == "dense", "what the others are compared with"


def letters(listed: Space, number: int) -> str:
    return "".join(slot.label[0] for slot in listed.layouts[number])


def test_rules_and_proposals_are_named_where_they_keep_the_limits() -> None:
    asked = request(4, 9.0)
    attention, dense, identity = asked.candidates
    proposed = [
        (identity, dense, attention, identity),
        (attention,) * 4,
        (dense, identity, identity, attention),  # the first one's network
        (dense, dense, dense, identity),
    ]
    listed = layout_space(asked, proposed)
    assert [letters(listed, number) for number in listed.proposed] == ["idai", "dddi"]
    rules = {
        name.removeprefix("attention blocks "): letters(listed, number)
        for name, number in listed.rules.items()
    }
    assert rules == {
        "first: 1": "addi", "spread: 1": "addi", "early: 1": "addi", "last: 1": "ddai",
        "first: 2": "aadi", "spread: 2": "adai", "early: 2": "aadi", "last: 2": "daai",
        "interleaved, cut": "adai",
    }  # fmt: skip


@pytest.mark.parametrize("most_networks", [0, 1000])
def test_with_token_shift_attention_is_also_spread_after_a_dense_block(
    most_networks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_spaces, "MOST_NETWORKS", most_networks)
    monkeypatch.setattr(layout_spaces, "_TRIES", 0)  # only rules, where not all are listed
    listed = layout_space(request(5, 15.0, token_shift=True))
    rules = {name: letters(listed, number) for name, number in listed.rules.items()}
    assert rules["attention blocks after dense: 1"] == "daddd"
    assert rules["attention blocks after dense: 2"] == "dadad"
    assert rules["attention blocks after dense: 4"] == "daaaa"
    assert not any("early" in name for name in rules)


def test_further_kinds_have_rules_of_their_own() -> None:
    labels = ("attention", "dense", "short_conv", "persistent", "identity")
    of_labels = {label: 1.0 for label in labels} | {"attention": 2.0, "identity": 0.0}
    cost = LayoutCost("flops", of_labels, 0.0)
    asked = Request(DeriveConfig(), tiny.candidates(*labels), 7, cost, limits=(Limit(cost, 7.0),))
    space = layout_space(asked)
    of_kinds = {
        name: letters(space, number)
        for name, number in space.rules.items()
        if name.startswith(("interleaved ", "hybrid"))
    }
    assert of_kinds == {
        "interleaved short_conv": "sdsdsds",
        "hybrid short_conv": "sdsdadi",
        "interleaved persistent": "apapiii",
    }
    short = layout_space(Request(DeriveConfig(), tiny.candidates(*labels), 4, cost)).rules
    assert "interleaved short_conv" in short
    assert "hybrid short_conv" not in short, "of four blocks it has no attention"
    alone = Request(DeriveConfig(), tiny.candidates("short_conv", "dense"), 3, cost)
    assert list(layout_space(alone).rules) == ["interleaved short_conv"]


def test_of_too_many_networks_many_are_drawn_and_the_rules_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout_spaces, "MOST_NETWORKS", 1000)
    monkeypatch.setattr(layout_spaces, "DRAWN", 500)
    asked = request(10, 22.0)
    one, again = layout_space(asked), layout_space(asked)
    assert one.layouts == again.layouts
    assert len(one.layouts) == 500
    assert all(COST(layout) <= 22.0 for layout in one.layouts)
    assert letters(one, one.rules["attention blocks first: 3"]) == "aaaddddddi"
    further = layout_space(request(10, 22.0, "attention", "dense", "short_conv", "identity"))
    assert letters(further, further.rules["hybrid short_conv"]) == "sdsdadsdsd"
    blocks = np.bincount((one.kind_NL != NONE).sum(axis=1))
    assert (blocks[5:] > 0).all()
    assert len(np.unique(one.kind_NL, axis=0)) == 500


def test_blocks_of_one_kind_by_two_labels_are_one_kind() -> None:
    attention, dense, identity = tiny.candidates("attention", "dense", "identity")
    again: Candidate = dense.model_copy(update={"label": "again"})
    asked = Request(DeriveConfig(), [attention, dense, again, identity], 3, lambda layout: 1.0)
    listed = layout_space(asked)
    assert listed.kinds == ("attention", "dense")
    assert len(listed.layouts) == 2 + 4 + 8
