"""What is said of a derivation on the screen."""

import json
from typing import Any

import pytest

from model import Architecture
from pipeline.derivation_text import describe
from tests.model.test_architecture import SCORED, architecture


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence": None},
        {"costs": None},
        {"costs": None, "evidence": {"method": "x"}},
        {"evidence": {"method": "x", **SCORED}},
        {"evidence": {"method": "x", "gap": {**SCORED["gap"], "ratio": 1.5}}},
        {"evidence": {"method": "x", "agreement": {**SCORED["agreement"], "kappa": None}}},
        {"evidence": {"method": "x", "agreement": {**SCORED["agreement"], "interval": None}}},
        {"evidence": {"method": "x", "caveats": ["warning: so"]}},
        {"evidence": {"method": "x", "pi": [{"a": 1.0}] * 5, "margins": [1.0] * 5}},
        {"evidence": {"method": "x", "pi": [{"a": 0.9995, "b": 0}] * 5, "margins": [1.0] * 5}},
    ],
)
def test_whatever_an_architecture_file_may_hold_is_described(changes: dict[str, Any]) -> None:
    value = json.loads(architecture().to_json()) | changes
    said = describe(Architecture.from_json(json.dumps(value), "x"))
    assert said.startswith("layout a d i wide near")
    caveats = (value["evidence"] or {}).get("caveats", [])
    assert said.endswith("\n".join(caveats))
