"""What the model section may say, and what candidates take from it."""

from typing import Any

import pytest

from model import ModelConfig

SIZES: dict[str, Any] = {"n_blocks": 2, "d_model": 16, "d_ffn": 32}


def config(**keys: Any) -> ModelConfig:
    return ModelConfig.model_validate({**SIZES, **keys})


def test_options_left_out_take_the_sections_value() -> None:
    made = config(
        n_heads=2, window=5, memory=7, activation="gelu",
        candidates=["attention", "dense", {"kind": "dense", "label": "wide", "d_ffn": 99}],
    ).completed_candidates()  # fmt: skip
    assert [candidate.model_dump() for candidate in made] == [
        {"kind": "attention", "label": "attention", "n_heads": 2, "d_head": 8,
         "n_kv_heads": None, "window": 5, "memory": 7, "clamp": None,
         "positions": "relative", "qk_norm": False},
        {"kind": "dense", "label": "dense", "d_ffn": 32, "activation": "gelu", "chunk": 1},
        {"kind": "dense", "label": "wide", "d_ffn": 99, "activation": "gelu", "chunk": 1},
    ]  # fmt: skip


def test_heads_need_not_divide_the_width_where_d_head_is_given() -> None:
    assert config(n_heads=5, d_head=3).completed_candidates()[0].model_dump()["d_head"] == 3


def test_every_kind_that_attends_takes_the_sections_positions_unless_it_says_its_own() -> None:
    kinds = ("attention", "adaptive_span", "all_attention", "routing")
    for made in config(candidates=kinds, positions="rope", qk_norm=True).completed_candidates():
        found = made.model_dump()
        assert (found["positions"], found["qk_norm"]) == ("rope", True)
    own = {"kind": "adaptive_span", "positions": "learned"}
    (span,) = config(candidates=[own], positions="none").completed_candidates()
    assert span.model_dump()["positions"] == "learned"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"positions": "rope", "d_head": 5}, "positions: rope needs an even d_head, not 5; change"),
        (
            {"positions": "none", "clamp": 6},
            "clamp: 6 has no effect with positions none; give null",
        ),
        (
            {"candidates": [{"kind": "attention", "positions": "none", "clamp": 0}]},
            r"candidates\[0\].clamp: 0 has no effect",
        ),
        ({"positions": "learned"}, "positions"),
        ({"candidates": [{"kind": "dense", "positions": "rope"}]}, "positions"),
        ({"candidates": [{"kind": "gated_delta", "qk_norm": True}]}, "qk_norm"),
    ],
)
def test_positions_without_meaning_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**keys)
