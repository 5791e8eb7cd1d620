"""What every registered kind must hold.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model import BLOCKS, Candidate, Dropout
from model.blocks.dense import DenseBlock
from model.slot import Slot
from model.state import Segment
from tests.model.tiny import D_MODEL, candidate, language_model, normal, randomise, tokens

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "attention": [{}, {"window": 3}, {"memory": 0}, {"n_heads": 1, "d_head": 5}, {"clamp": 2}],
    "dense": [{"activation": name} for name in ("relu", "gelu", "swiglu", "geglu")],
}
CANDIDATES = {
    f"{kind}-{'-'.join(map(str, options.values()))}": candidate(kind, **options)
    for kind in BLOCKS
    for options in VARIANTS.get(kind, [{}])
}
every_kind = pytest.mark.parametrize("made", CANDIDATES.values(), ids=CANDIDATES)


def slot_of(*candidates: Candidate) -> Slot:
    slot = Slot(candidates, D_MODEL, Dropout())
    randomise(slot)
    return slot


def apply(slot: Slot, x_BTD: torch.Tensor, seen: int = 4) -> torch.Tensor:
    """The slot's output after random memory of which `seen` rows are valid."""
    rows = max(slot.block(label).memory_rows for label in slot.labels)
    memory = normal(x_BTD.shape[0], rows, D_MODEL, seed=9) if rows else None
    segment = Segment(torch.full((x_BTD.shape[0],), seen), x_BTD.shape[1])
    states = (None,) * len(slot.labels)
    return slot(x_BTD, memory, segment, states, [(0, None)])[0]


@every_kind
def test_delta_has_the_shape_of_the_segment(made: Candidate) -> None:
    block = slot_of(made).block(made.label)
    rows = block.memory_rows
    delta, _, aux = block(
        normal(2, rows + 5, D_MODEL), Segment(torch.tensor([rows, rows]), 5), None
    )
    assert delta.shape == (2, 5, D_MODEL)
    assert aux is None or aux.dim() == 0


@every_kind
def test_no_position_sees_a_later_one(made: Candidate) -> None:
    slot, x_BTD = slot_of(made), normal(2, 7, D_MODEL)
    for first_changed in range(1, 7):
        other_BTD = x_BTD.clone()
        other_BTD[:, first_changed:] = normal(2, 7 - first_changed, D_MODEL, seed=first_changed)
        before, after = apply(slot, x_BTD), apply(slot, other_BTD)
        torch.testing.assert_close(
            before[:, :first_changed], after[:, :first_changed], rtol=0, atol=1e-12
        )
        assert not torch.equal(before[:, first_changed:], after[:, first_changed:])


@every_kind
def test_streams_do_not_see_each_other(made: Candidate) -> None:
    slot, x_BTD = slot_of(made), normal(3, 4, D_MODEL)
    other_BTD = x_BTD.clone()
    other_BTD[1] = normal(4, D_MODEL, seed=7)
    before, after = apply(slot, x_BTD), apply(slot, other_BTD)
    torch.testing.assert_close(before[[0, 2]], after[[0, 2]], rtol=0, atol=1e-12)


@every_kind
def test_a_finite_gradient_reaches_every_parameter(made: Candidate) -> None:
    slot = slot_of(made)
    x_BTD = normal(2, 5, D_MODEL).requires_grad_()
    (apply(slot, x_BTD) * normal(2, 5, D_MODEL, seed=3)).sum().backward()
    for name, parameter in slot.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@every_kind
@pytest.mark.parametrize(("batch", "segment"), [(3, 5), (1, 1), (2, 9)])
def test_declared_flops_are_those_that_torch_counts(
    made: Candidate, batch: int, segment: int
) -> None:
    slot = slot_of(made)
    block = slot.block(made.label)
    with FlopCounterMode(display=False) as counter:
        apply(slot, normal(batch, segment, D_MODEL))
    declared = block.flops(batch, segment, block.memory_rows) * batch * segment
    assert declared == pytest.approx(counter.get_total_flops(), rel=1e-12)


@every_kind
def test_a_one_hot_supernet_slot_is_the_model_derived_from_it(made: Candidate) -> None:
    others = [candidate(kind, label=f"other_{kind}", memory=9) if kind == "attention"
              else candidate(kind, label=f"other_{kind}") for kind in BLOCKS]  # fmt: skip
    supernet = language_model([[others[0], made, *others[1:]]] * 3, cutoffs=(5, 11))
    derived = language_model([[made]] * 3, cutoffs=(5, 11))
    weights = supernet.state_dict()
    derived.load_state_dict({name: weights[name] for name in derived.state_dict()})
    one = torch.ones((), dtype=torch.float64, requires_grad=True)
    zero = torch.zeros((), dtype=torch.float64)
    everything = [(index, one if index == 1 else zero) for index in range(len(others) + 1)]

    ids_BT = tokens(2, 12)
    for mix in ([[(1, None)]] * 3, [[(1, one)]] * 3, [everything] * 3):
        state, derived_state = supernet.initial_state(2), derived.initial_state(2)
        for segment_BT in ids_BT.split(4, dim=1):
            h_BTD, state, _ = supernet(segment_BT, state, mix)
            wanted_BTD, derived_state, _ = derived(segment_BT, derived_state)
            torch.testing.assert_close(h_BTD, wanted_BTD, rtol=0, atol=1e-12)


def test_a_gated_block_activates_the_first_half() -> None:
    slot = slot_of(candidate("dense", activation="swiglu", d_ffn=3))
    block = slot.blocks["dense"]
    assert isinstance(block, DenseBlock)
    c_BSD, none_BM = normal(2, 4, D_MODEL), Segment(torch.zeros(2), 4)
    w1, v = block.inner.weight[:3], block.inner.weight[3:]
    wanted = (torch.nn.functional.silu(c_BSD @ w1.T) * (c_BSD @ v.T)) @ block.outer.weight.T
    torch.testing.assert_close(block(c_BSD, none_BM, None)[0], wanted, rtol=0, atol=1e-12)
    assert block.inner.bias is None


def test_a_relu_block_is_two_affine_maps() -> None:
    block = slot_of(candidate("dense", activation="relu", d_ffn=3)).blocks["dense"]
    assert isinstance(block, DenseBlock)
    c_BSD, none_BM = normal(2, 4, D_MODEL), Segment(torch.zeros(2), 4)
    inner = (c_BSD @ block.inner.weight.T + block.inner.bias).clamp(min=0)
    wanted = inner @ block.outer.weight.T + block.outer.bias
    torch.testing.assert_close(block(c_BSD, none_BM, None)[0], wanted, rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("kind", BLOCKS)
def test_what_was_added_to_a_kind_has_a_meaning_in_older_files(kind: str) -> None:
    options = BLOCKS[kind].options
    for name, value in options.added.items():
        assert getattr(candidate(kind, **{name: value}), name) == value
