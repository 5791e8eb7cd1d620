"""The architecture file: what is written is what is read, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import pytest

from model import BLOCKS, Architecture, SoftmaxConfig, load_architecture, parse_layout
from tests.model.tiny import D_MODEL, VOCABULARY, candidate

CANDIDATES = [
    candidate("attention"),
    candidate("dense"),
    candidate("identity"),
    candidate("dense", label="wide", d_ffn=20),
    candidate("attention", label="near", window=3),
]


def architecture(layout: str = "a d i wide near", **fields: Any) -> Architecture:
    slots = parse_layout(layout, CANDIDATES)
    pi = {"attention": 0.1 + 0.2, "dense": 0.7}
    given: dict[str, Any] = {
        "name": "argmax",
        "d_model": D_MODEL,
        "blocks": slots,
        "softmax": SoftmaxConfig(cutoffs=(5, 11)),
        "vocabulary_size": VOCABULARY,
        "tokenizer": {"digest": "abc"},
        "costs": {
            "parameters": 12,
            "flops_per_token": 3.5,
            "key": {"batch": 2, "segment": 5, "mass": [0.5, 0.25, 0.25]},
        },
        "evidence": {"method": "argmax", "pi": [pi] * len(slots), "margins": [0.1] * len(slots)},
        "provenance": {"run": "runs/x", "wort": "gr\u00fcn"},
    }
    return Architecture(**{**given, **fields})


@pytest.mark.parametrize("fields", [{}, {"costs": None, "evidence": None, "provenance": {}}])
def test_text_becomes_the_same_object_and_the_same_text(fields: dict[str, Any]) -> None:
    made = architecture(**fields)
    again = Architecture.from_json(made.to_json(), "x")
    assert again == made
    assert again.to_json() == made.to_json()
    assert made.to_json().isascii()


def test_a_file_that_lacks_an_option_is_refused() -> None:
    value = json.loads(architecture().to_json())
    del value["blocks"][0]["clamp"]
    with pytest.raises(ValueError, match=r"^x: blocks\[0\]\.clamp: missing$"):
        Architecture.from_json(json.dumps(value), "x")


MEASURED = {"nats_per_token": 2.5, "standard_error": 0.01}
SCORED: dict[str, Any] = {
    "inherited": MEASURED,
    "gap": {
        "tokens": 100, "soft": MEASURED, "sampled": MEASURED, "one_hot": MEASURED, "draws": 8,
        "ratio": 1.01, "ratio_error": 0.002,
    },
    "agreement": {"searches": [0, 1], "blocks": [1.0] * 5, "kappa": 0.5, "interval": [0.1, 0.9]},
    "caveats": ["warning: one search says little"],
}  # fmt: skip


def test_evidence_of_scores_is_written_and_then_read() -> None:
    bare = json.loads(architecture().to_json())
    bare["evidence"] |= SCORED
    again = Architecture.from_json(json.dumps(bare), "x")
    assert json.loads(again.to_json())["evidence"]["gap"] == SCORED["gap"]
    assert again.evidence is not None
    assert again.evidence.agreement is not None
    assert again.evidence.agreement.interval == (0.1, 0.9)
    assert "p_by_chance" not in again.evidence.agreement.model_dump(exclude_none=True)
    bare["evidence"]["agreement"]["p_by_chance"] = 0.0
    assert json.loads(Architecture.from_json(json.dumps(bare), "x").to_json()) == bare


def refusal(change: Any) -> list[str]:
    """What is said of a file in which `change` altered something."""
    value = json.loads(architecture().to_json())
    change(value)
    with pytest.raises(ValueError, match=r"^architecture\.json: ") as raised:
        Architecture.from_json(json.dumps(value), "architecture.json")
    return str(raised.value).splitlines()


CHANGES: dict[str, tuple[Any, str]] = {
    "kind": (
        lambda v: v["blocks"][3].update(kind="atention"),
        f"blocks[3]: kind must be one of {', '.join(BLOCKS)}; found 'atention'; "
        "did you mean 'attention'?",
    ),
    "no_kind": (lambda v: v["blocks"][1].pop("kind"), "blocks[1].kind: missing; it has no default"),
    "field": (lambda v: v.update(nam=1), "nam: unknown key; did you mean 'name'?"),
    "no_field": (lambda v: v.pop("d_model"), "d_model: missing; it has no default"),
    "no_label": (lambda v: v["blocks"][2].pop("label"), "blocks[2].label: missing"),
    "null_option": (
        lambda v: v["blocks"][1].update(d_ffn=None),
        "blocks[1].d_ffn: must be a valid integer, found nothing",
    ),
    "added_to_another_kind": (
        lambda v: v["blocks"][1].update(clamp=None),
        "blocks[1].clamp: unknown key; kinds that have it: attention, all_attention",
    ),
    "huge": (
        lambda v: v.update(d_model=10**9),
        "d_model: must be less than or equal to 65536, found 1000000000",
    ),
    "version": (lambda v: v.update(version=2), "version: must be one of 1; found 2"),
    "cutoffs": (
        lambda v: v.update(vocabulary_size=11),
        "softmax.cutoffs: 11 is not below the vocabulary 11; give smaller cutoffs or fewer",
    ),
    "path": (
        lambda v: v.update(name="../x"),
        "name: string should match pattern '^[A-Za-z0-9][A-Za-z0-9._-]*$', found '../x'",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_is_wrong_is_named_by_its_path(case: str) -> None:
    change, message = CHANGES[case]
    assert refusal(change) == [f"architecture.json: {message}"]


def test_broken_json_is_refused() -> None:
    for text, message in {
        "": "invalid JSON: ",
        '{"version": 1,}': "invalid JSON: .* at line 1 column 15",
        "[1]": "must be an object",
        "[" * 100_000: "invalid JSON: recursion limit",
    }.items():
        with pytest.raises(ValueError, match=f"^a.json: {message}"):
            Architecture.from_json(text, "a.json")


def test_a_file_is_read_with_its_name_in_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(architecture().to_json())
    assert load_architecture(path) == architecture()
    path.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"a\.json: invalid JSON"):
        load_architecture(path)
    with pytest.raises(OSError, match="none"):
        load_architecture(tmp_path / "none.json")
