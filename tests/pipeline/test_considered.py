"""What a derivation says on screen, of anything that an architecture file may hold."""

import json
from typing import Any

import pytest

from model import Architecture
from pipeline.supernet_scores import describe
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
        {"evidence": {"method": "x", "caveats": ["warning: so"]}},
        {"evidence": {"method": "x", "pi": [{"a": 1.0}] * 5, "margins": [1.0] * 5}},
        {"evidence": {"method": "x", "pi": [{"a": 0.9995, "b": 0}] * 5, "margins": [1.0] * 5}},
    ],
)
def test_whatever_is_read_is_described(changes: dict[str, Any]) -> None:
    value = json.loads(architecture().to_json()) | changes
    read = Architecture.from_json(json.dumps(value), "x")
    said = describe(read)
    assert said.startswith("layout a d i wide near")
    caveats = (value["evidence"] or {}).get("caveats", [])
    assert said.endswith("\n".join(caveats))
