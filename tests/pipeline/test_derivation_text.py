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
    said = describe(Architecture.from_json(json.dumps(value), "x"), 0.2)
    assert said.startswith("layout a d i wide near")
    has_pi = bool((value["evidence"] or {}).get("pi"))
    assert ("pi of alpha's mean over the last 20% of the steps:" in said) is has_pi
    caveats = (value["evidence"] or {}).get("caveats", [])
    assert said.endswith("\n".join(caveats))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (
            {"batch": "2", "segment": "32"},
            "throughput 32,000 tokens per second, 2.000x of a d a d ",
        ),
        ({"batch": "two", "segment": "32"}, "throughput 2 ms, 0.500x of a d a d "),
        ({"batch": "9" * 400, "segment": "32"}, "throughput 2 ms, 0.500x of a d a d "),
        ({}, "throughput 2 ms, 0.500x of a d a d "),
    ],
)
def test_a_throughput_is_said_in_tokens_where_the_file_tells_how_many(
    shape: dict[str, str], words: str
) -> None:
    value = json.loads(architecture().to_json())
    reference = {"reference": "a d a d", "reference_ms": 4.0}
    time = {"name": "throughput", "ms": 2.0, "most_ms": 3.0, **reference, "key": shape}
    value["costs"]["times"] = [time]
    assert words in describe(Architecture.from_json(json.dumps(value), "x"), 0.2)
