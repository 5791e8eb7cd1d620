"""What every registered kind must hold.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from model import BLOCKS, Candidate, Dropout, reads_context
from model.blocks.dense import DenseBlock
from model.config import NO_OPTIONS
from model.slot import Slot
from model.state import Segment
from tests.model.contract import CONTRACT, mixes_tokens, slot_of
from tests.model.tiny import D_MODEL, candidate, normal

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "adaptive_span": [
        {"span": 4, "ramp": 2},
        {"span": 20, "ramp": 3},
        {"span": 9, "ramp": 40},
        {"span": 9, "positions": "learned"},
        {"span": 5, "ramp": 2, "sees_itself": False},
        {"span": 4, "ramp": 2, "positions": "learned", "sees_itself": False},
        {"span": 4, "ramp": 2, "positions": "rope", "sees_itself": False, "qk_norm": True},
        {"span": 9, "positions": "none"},
        {"span": 5, "positions": "learned", "qk_norm": True},
    ],
    "all_attention": [
        {"n_vectors": 3},
        {"window": 3, "n_vectors": 1},
        {"n_kv_heads": 1, "qk_norm": True},
        {"n_vectors": 3, "positions": "rope", "window": 3},
        {"n_vectors": 3, "positions": "none", "qk_norm": True},
    ],
    "attention": [
        {},
        {"window": 3},
        {"memory": 0},
        {"n_heads": 1, "d_head": 5},
        {"clamp": 2},
        {"n_kv_heads": 1},
        {"n_heads": 4, "n_kv_heads": 2, "window": 4},
        {"qk_norm": True},
        {"positions": "rope"},
        {"positions": "rope", "qk_norm": True, "clamp": 2},
        {"positions": "rope", "window": 4, "memory": 3, "n_kv_heads": 1, "clamp": 1},
        {"positions": "none", "qk_norm": True, "n_kv_heads": 1},
    ],
    "dense": [
        *({"activation": name} for name in ("relu", "relu2", "gelu", "swiglu", "geglu")),
        {"chunk": 3},
        {"activation": "swiglu", "chunk": 2},
    ],
    "gated_delta": [{}, {"kernel": 1, "n_heads": 1, "d_head": 5}],
    "linear_attention": [{}, {"n_heads": 1, "d_head": 5}],
    "mixture_of_experts": [
        {},
        {"k": 1, "n_experts": 2, "balance_loss": 0.0},
        {"k": 3, "n_experts": 3},
    ],
    "product_key_memory": [{}, {"k": 3, "n_keys": 3, "heads": 1, "d_key": 3}],
    "persistent": [{}, {"n_vectors": 3, "n_heads": 1, "d_head": 5}],
    "routing": [
        {"clusters": 3, "keys": 3},
        {"n_local_heads": 0, "clusters": 2, "keys": 4},
        {"clusters": 3, "keys": 3, "positions": "rope", "qk_norm": True},
        {"clusters": 3, "keys": 3, "positions": "none"},
    ],
    "short_conv": [{}, {"kernel": 1}, {"kernel": 9}],
}
CANDIDATES = {
    f"{kind}-{'-'.join(map(str, options.values()))}": candidate(kind, **options)
    for kind in BLOCKS
    for options in VARIANTS.get(kind, [{}])
}
every_kind = pytest.mark.parametrize("made", CANDIDATES.values(), ids=CANDIDATES)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@every_kind
def test_the_contract(check: Callable[..., None], made: Candidate) -> None:
    check(made, NO_OPTIONS)


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_registry_says_which_kinds_mix_tokens(kind: str) -> None:
    made = candidate(kind)
    assert mixes_tokens(made) == BLOCKS[kind].mixes_tokens == reads_context(made)
    if (option := type(made).reach) is not None:
        alone = candidate(kind, **{option: 1})
        assert not mixes_tokens(alone)
        assert not reads_context(alone)


def test_a_gated_block_activates_the_first_half() -> None:
    slot = slot_of(candidate("dense", activation="swiglu", d_ffn=3))
    block = slot.blocks["dense"]
    assert isinstance(block, DenseBlock)
    c_BSD, none_BM = normal(2, 4, D_MODEL), Segment(torch.zeros(2), 4)
    w1, v = block.inner.weight[:3], block.inner.weight[3:]
    wanted = (torch.nn.functional.silu(c_BSD @ w1.T) * (c_BSD @ v.T)) @ block.outer.weight.T
    torch.testing.assert_close(block(c_BSD, none_BM, None)[0], wanted, rtol=0, atol=1e-12)
    assert block.inner.bias is None


@pytest.mark.parametrize(
    ("kind", "inside"),
    [("adaptive_span", "attention"), ("all_attention", "attention"), ("routing", "local")],
)
def test_the_attention_within_a_kind_has_its_positions_and_norm(kind: str, inside: str) -> None:
    block = slot_of(candidate(kind, positions="rope", qk_norm=True)).blocks[kind]
    attention = getattr(block, inside)
    assert (attention.positions, attention.u_HK) == ("rope", None)
    assert attention.query_norm_K is not None


def test_squared_relu_is_that() -> None:
    block = slot_of(candidate("dense", activation="relu2")).blocks["dense"]
    assert isinstance(block, DenseBlock)
    c_BSD = normal(2, 4, D_MODEL)
    inner_BSF = (c_BSD @ block.inner.weight.T + block.inner.bias).clamp(min=0) ** 2
    wanted = inner_BSF @ block.outer.weight.T + block.outer.bias
    found = block(c_BSD, Segment(torch.zeros(2), 4), None)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_every_kind_has_a_letter_and_a_label_of_its_own() -> None:
    assert len({kind.letter for kind in BLOCKS.values()}) == len(BLOCKS)
    for name, kind in BLOCKS.items():
        assert kind.options(kind=name).label == name  # type: ignore[call-arg]


OTHER_VALUES: dict[str, tuple[int, ...]] = {"memory": (0, 9), "window": (1, 7), "clamp": (0, 3)}


@pytest.mark.parametrize("kind", BLOCKS)
def test_no_weight_depends_on_an_adjustable_option(kind: str) -> None:
    options = BLOCKS[kind].options
    assert options.adjustable <= options.model_fields.keys()
    for name in options.adjustable:
        for value in OTHER_VALUES[name]:
            torch.manual_seed(0)
            made = Slot([candidate(kind)], D_MODEL, Dropout()).state_dict()
            torch.manual_seed(0)
            other = Slot([candidate(kind, **{name: value})], D_MODEL, Dropout()).state_dict()
            assert made.keys() == other.keys()
            assert all(torch.equal(made[key], other[key]) for key in made)
