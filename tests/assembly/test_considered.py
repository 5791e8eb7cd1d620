"""What a derivation says on screen, of anything that an architecture file may hold."""

import json
from typing import Any

import pytest

from assembly.considered import agreement_line, describe
from model import Agreement, Architecture
from tests.model.test_architecture import SCORED, architecture

AGREEMENT = SCORED["agreement"]


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence": None},
        {"costs": None},
        {"costs": None, "evidence": {"method": "x"}},
        {"evidence": {"method": "x", **SCORED}},
        {"evidence": {"method": "x", "agreement": {**AGREEMENT, "kappa": None}}},
        {"evidence": {"method": "x", "agreement": {**AGREEMENT, "interval": None}}},
        {"evidence": {"method": "x", "pi": [{"a": 1.0}] * 5, "margins": [1.0] * 5}},
        {"evidence": {"method": "x", "pi": [{"a": 0.9995, "b": 0}] * 5, "margins": [1.0] * 5}},
    ],
)
def test_whatever_is_read_is_described(changes: dict[str, Any]) -> None:
    value = json.loads(architecture().to_json()) | changes
    read = Architecture.from_json(json.dumps(value), "x")
    assert describe(read).startswith("layout a d i wide near")


def test_what_chance_does_is_said_as_far_as_it_is_known() -> None:
    old = Agreement.model_validate(AGREEMENT)
    assert agreement_line(old) == (
        "agreement of 2 searches: kappa 0.500, 95% interval [0.100, 0.900] over 5 slots"
    )
    new = old.model_copy(update={"p_by_chance": 0.0123})
    assert agreement_line(new) == (
        f"{agreement_line(old)}; choices put into slots at random agree as much with p = 0.0123"
    )
    few = old.model_copy(update={"interval": None})
    assert "kappa 0.500, no interval (too few slots" in agreement_line(few)
