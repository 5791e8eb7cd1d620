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
        {"evidence": {"method": "x", "gap": {**SCORED["gap"], "ratio": 1.5}}},
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


def gap_words(ratio: float, margins: list[float], **scored: Any) -> str:
    value = json.loads(architecture().to_json())
    value["evidence"] = {
        "method": "x",
        "pi": [{"a": (1 + margin) / 2, "d": (1 - margin) / 2} for margin in margins],
        "margins": margins,
        "gap": {**SCORED["gap"], "ratio": ratio},
        **scored,
    }
    said = describe(Architecture.from_json(json.dumps(value), "x"))
    return said[said.index("perplexity of one-hot over soft") :]


def test_a_layout_read_off_pi_and_far_from_its_mixture_is_warned_of_with_a_remedy() -> None:
    margins = [0.1, 0.02, 0.8, 0.0, 0.9]
    assert "warning" not in gap_words(1.03, margins)
    said = gap_words(1.0487, margins)
    assert (
        "\nwarning: this layout costs 4.9% more perplexity than pi's mixture (more than 3%)" in said
    )
    assert "; slots that pi leaves open (margin below 0.1): 1, 3. Derive another" in said
    assert "--method top_k" in said
    assert "(more than 3%). Derive another" in gap_words(1.0487, [0.5] * 5)
    assert "warning" not in gap_words(1.0487, margins, inherited=SCORED["inherited"])
