"""What every kind of block must hold: each check raises AssertionError where a candidate does not.

Under options of the whole model a slot must hold the same.

B batch   T segment length   M memory length   S = M + T keys   D d_model
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from model import (
    BLOCKS,
    Candidate,
    Dropout,
    LanguageModel,
    ModelOptions,
    SoftmaxConfig,
    StreamState,
)
from model.config import NO_OPTIONS
from model.saving import put_tensors
from model.slot import Slot
from model.state import Segment
from tests.model.tiny import (
    D_MODEL,
    VOCABULARY,
    candidate,
    language_model,
    normal,
    randomise,
    tokens,
)

LENGTH = 13
# Of the norm of what a block adds. gated_delta, which divides by the norm of what it reads, is up
# to 0.062 away and any other kind 0.013; one token in another cluster is 0.2.
BFLOAT16 = 0.12


def slot_of(*candidates: Candidate, options: ModelOptions = NO_OPTIONS) -> Slot:
    """A random slot in float64."""
    slot = Slot(candidates, D_MODEL, Dropout(), options)
    randomise(slot)
    return slot


def apply(slot: Slot, x_BTD: Tensor, seen: int = 4) -> Tensor:
    """The slot's output after random memory of which `seen` rows are valid."""
    rows = max(map(slot.memory_rows, slot.labels))
    memory = normal(x_BTD.shape[0], rows, D_MODEL, seed=9) if rows else None
    segment = Segment(torch.full((x_BTD.shape[0],), seen), x_BTD.shape[1])
    states = (None,) * len(slot.labels)
    return slot(x_BTD, memory, segment, states, [(0, None)])[0]


def read(
    model: LanguageModel,
    ids_BT: Tensor,
    segments: int | list[int],
    *,
    cached: bool = False,
    mix: Any = None,
) -> Tensor:
    """The hidden states of streams that are read in segments."""
    state, parts = model.initial_state(ids_BT.shape[0], cached=cached), []
    for part_BT in ids_BT.split(segments, dim=1):
        h_BTD, state, _ = model(part_BT, state, mix)
        parts.append(h_BTD)
    return torch.cat(parts, dim=1)


def _solution(matrix_shape: tuple[int, ...], right_shape: tuple[int, ...], **_: Any) -> int:
    """A triangular matrix has half of the products."""
    return int(torch.Size(right_shape).numel()) * matrix_shape[-1]


def _bag(table_shape: tuple[int, ...], number_shape: tuple[int, ...], *_: Any, **__: Any) -> int:
    return 2 * int(torch.Size(number_shape).numel()) * table_shape[1]


# What torch does not count by itself.
UNCOUNTED = {torch.ops.aten.linalg_solve_triangular: _solution, torch.ops.aten._embedding_bag: _bag}


def _equal(one: Tensor, other: Tensor) -> None:
    # Without norms numbers grow, and their rounding with them.
    size = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * size)


def delta_has_the_shape_of_the_segment(made: Candidate, options: ModelOptions) -> None:
    """And the auxiliary loss is one number, or none."""
    block = slot_of(made, options=options).block(made.label)
    rows = block.memory_rows
    segment = Segment(torch.tensor([rows, rows]), 5)
    delta, _, aux = block(normal(2, rows + 5, D_MODEL), segment, None)
    assert delta.shape == (2, 5, D_MODEL)
    assert aux is None or aux.dim() == 0


def no_position_sees_a_later_one(made: Candidate, options: ModelOptions) -> None:
    """Other numbers from any position on change nothing before it, and something behind it."""
    slot, x_BTD = slot_of(made, options=options).eval(), normal(2, 7, D_MODEL)
    for first_changed in range(1, 7):
        other_BTD = x_BTD.clone()
        other_BTD[:, first_changed:] = normal(2, 7 - first_changed, D_MODEL, seed=first_changed)
        before, after = apply(slot, x_BTD), apply(slot, other_BTD)
        _equal(before[:, :first_changed], after[:, :first_changed])
        assert not torch.equal(before[:, first_changed:], after[:, first_changed:])


def what_mixes_tokens_says_so(made: Candidate, options: ModelOptions) -> None:
    """Rules of derivations ask the registry which kinds stand in the place of attention."""
    # By the option token_shift every slot mixes them.
    assert options.token_shift or mixes_tokens(made) <= BLOCKS[made.kind].mixes_tokens


def mixes_tokens(made: Candidate) -> bool:
    """Whether another number at one position changes what is added behind it."""
    slot, x_BTD = slot_of(made).eval(), normal(2, 7, D_MODEL)
    other_BTD = x_BTD.clone()
    other_BTD[:, 2] = normal(2, D_MODEL, seed=3)
    moved_BTD = apply(slot, x_BTD)[:, 3:] - apply(slot, other_BTD)[:, 3:]
    # How many rows are multiplied at once changes the last bits.
    return bool(moved_BTD.detach().abs().max() > 1e-9)


def streams_do_not_see_each_other(made: Candidate, options: ModelOptions) -> None:
    """Another stream in the batch changes nothing."""
    slot, x_BTD = slot_of(made, options=options).eval(), normal(3, 4, D_MODEL)
    other_BTD = x_BTD.clone()
    other_BTD[1] = normal(4, D_MODEL, seed=7)
    before, after = apply(slot, x_BTD), apply(slot, other_BTD)
    _equal(before[[0, 2]], after[[0, 2]])


def segments_do_not_matter(made: Candidate, options: ModelOptions) -> None:
    """A stream cut anyhow gives what one long pass gives, as in training and as in evaluation.

    Where the memory is long enough.
    """
    if "memory" in type(made).model_fields:
        made = made.model_copy(update={"memory": LENGTH})
    model, ids_BT = language_model([[made]] * 2, options=options), tokens(2, LENGTH)
    whole_BTD = read(model, ids_BT, LENGTH)
    for segments in (1, 3, 7, [2, 5, 1, 5]):
        _equal(read(model, ids_BT, segments), whole_BTD)
        with torch.no_grad():
            _equal(read(model, ids_BT, segments, cached=True), whole_BTD)


@torch.no_grad()
def segments_may_be_read_at_once(made: Candidate, options: ModelOptions) -> None:
    """In an evaluation several segments at once are the same segments one after the other."""
    model, ids_BT = language_model([[made]] * 2, options=options), tokens(2, LENGTH)
    for chunk in (2, 5):
        wanted_BTD = read(model, ids_BT, chunk, cached=True)
        state, parts = model.initial_state(2, cached=True), []
        for part_BT in (ids_BT[:, :chunk], ids_BT[:, chunk:]):
            h_BTD, state, _ = model(part_BT, state, chunk=chunk)
            parts.append(h_BTD)
        _equal(torch.cat(parts, dim=1), wanted_BTD)


def a_reset_stream_begins_anew(made: Candidate, options: ModelOptions) -> None:
    """As if it had seen nothing, in training and in an evaluation."""
    model, ids_BT = language_model([[made]] * 2, options=options), tokens(2, 9)
    for cached in (False, True):
        with torch.set_grad_enabled(not cached):
            begun = model.initial_state(2, cached=cached)
            wanted_BTD, _, _ = model(ids_BT[:, 5:], begun)
            _, state, _ = model(ids_BT[:, :5], begun)
            _equal(model(ids_BT[:, 5:], state.reset())[0], wanted_BTD)


def no_gradient_flows_into_earlier_segments(made: Candidate, options: ModelOptions) -> None:
    """What streams carry has no gradient, so that a step costs what one segment costs."""
    model, ids_BT = language_model([[made]] * 2, options=options, tied=False), tokens(2, 8) % 5
    ids_BT[:, 4:] += 5
    _, state, _ = model(ids_BT[:, :4], model.initial_state(2))
    h_BTD, state, _ = model(ids_BT[:, 4:], state)
    model.nll(h_BTD, ids_BT[:, 4:]).sum().backward()
    assert model.embedding is not None
    grad = model.embedding.head.grad
    assert grad is not None
    assert torch.equal(grad[:5], torch.zeros_like(grad[:5]))
    assert grad[5:10].abs().max() > 0
    assert not any(tensor.requires_grad for tensor in state.tensors().values())


def an_evaluation_draws_no_random_number(made: Candidate, options: ModelOptions) -> None:
    """And repeats itself to the bit; nothing of the model changes."""
    dropout = Dropout(residual=0.5, attention=0.5, dense=0.5)
    model = language_model([[made]] * 2, dropout=dropout, options=options).eval()
    before, weights = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    first, second = (read(model, tokens(2, LENGTH), 4) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def a_finite_gradient_reaches_every_parameter(made: Candidate, options: ModelOptions) -> None:
    """And it is not 0, with the auxiliary loss and weights as they are after a step."""
    model = language_model([[made]], options=options)
    model.after_step(lambda tensors: None)
    slot, x_BTD = model.slots[0], normal(2, 5, D_MODEL).requires_grad_()
    rows = slot.memory_rows(made.label)
    memory = normal(2, rows, D_MODEL, seed=9) if rows else None
    segment = Segment(torch.full((2,), 4), 5)
    out_BTD, _, _, aux = slot(x_BTD, memory, segment, (None,), [(0, None)])
    loss = (out_BTD * normal(2, 5, D_MODEL, seed=3)).sum() + (0.0 if aux is None else aux)
    loss.backward()
    for name, parameter in slot.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def declared_flops_are_those_that_torch_counts(made: Candidate, options: ModelOptions) -> None:
    """Matrix products of the forward pass of a segment behind its memory.

    Where it depends on the weights how many they are, no weights have more.
    """
    slot, sizes = slot_of(made, options=options), ((3, 5), (1, 1), (2, 9))
    block = slot.block(made.label)
    of_any = [_counted_flops(slot, *size) for size in sizes]
    getattr(block, "costliest", lambda: None)()
    for (batch, segment), any_weights in zip(sizes, of_any, strict=True):
        declared = block.flops(batch, segment, block.memory_rows) * batch * segment
        counted = _counted_flops(slot, batch, segment)
        assert abs(declared - counted) <= 1e-12 * counted, (declared, counted)
        assert any_weights <= counted


def _counted_flops(slot: Slot, batch: int, segment: int) -> int:
    counter = FlopCounterMode(display=False, custom_mapping=UNCOUNTED)
    # It does not see into the CPU's fused kernel of attention.
    with counter, sdpa_kernel(SDPBackend.MATH):
        apply(slot, normal(batch, segment, D_MODEL))
    return counter.get_total_flops()


def a_one_hot_supernet_slot_is_the_model_derived_from_it(
    made: Candidate, options: ModelOptions
) -> None:
    """Over three segments, whether the others are left out or have a weight of 0."""
    others = [
        candidate(kind, label=f"other_{kind}", **({"memory": 9} if kind == "attention" else {}))
        for kind in BLOCKS
    ]
    supernet = language_model(
        [[others[0], made, *others[1:]]] * 3, options=options, cutoffs=(5, 11)
    )
    derived = language_model([[made]] * 3, options=options, cutoffs=(5, 11))
    weights = supernet.state_dict()
    derived.load_state_dict({name: weights[name] for name in derived.state_dict()})
    one = torch.ones((), dtype=torch.float64, requires_grad=True)
    zero = torch.zeros((), dtype=torch.float64)
    everything: list[Any] = [
        (index, one if index == 1 else zero) for index in range(len(others) + 1)
    ]
    ids_BT = tokens(2, 12)
    for mix in ([[(1, None)]] * 3, [[(1, one)]] * 3, [everything] * 3):
        state, derived_state = supernet.initial_state(2), derived.initial_state(2)
        for segment_BT in ids_BT.split(4, dim=1):
            h_BTD, state, _ = supernet(segment_BT, state, mix)
            wanted_BTD, derived_state, _ = derived(segment_BT, derived_state)
            _equal(h_BTD, wanted_BTD)


def what_streams_carry_returns_from_a_file(made: Candidate, options: ModelOptions) -> None:
    """A state goes through named tensors and back, also in two parts."""
    model, ids_BT = language_model([[made]] * 2, options=options), tokens(3, 8)
    _, state, _ = model(ids_BT[:, :4], model.initial_state(3))
    wanted_BTD = model(ids_BT[:, 4:], state)[0]
    back = StreamState.from_tensors(state.tensors(), like=model.initial_state(3))
    _equal(model(ids_BT[:, 4:], back)[0], wanted_BTD)
    joined = StreamState.join([state.rows(slice(0, 1)), state.rows(slice(1, 3))])
    _equal(model(ids_BT[:, 4:], joined)[0], wanted_BTD)


def a_loaded_model_is_whole(made: Candidate, options: ModelOptions) -> None:
    """It moves to a device and computes the same, also with buffers that are in no file."""
    model = language_model([[made]] * 2, options=options)
    with torch.device("meta"):
        empty = LanguageModel(
            [[made]] * 2,
            d_model=D_MODEL,
            vocabulary_size=VOCABULARY,
            softmax=SoftmaxConfig(),
            options=options,
        )
    put_tensors("model", empty, model.state_dict())
    loaded = empty.eval().to("cpu")
    buffers = dict(loaded.named_buffers())
    assert buffers.keys() == dict(model.named_buffers()).keys()
    for name, buffer in model.named_buffers():
        assert torch.equal(buffers[name], buffer.to(buffers[name].dtype)), name
    ids_BT = tokens(2, LENGTH)
    _equal(read(loaded, ids_BT, 4), read(model, ids_BT, 4))


def bfloat16_is_near_float32(made: Candidate, options: ModelOptions) -> None:
    """Under autocast: what a block adds is, with the tokens' choices, and gradients are finite."""
    for seed in range(4):
        block = slot_of(made, options=options).float().block(made.label)
        c_BSD = normal(2, block.memory_rows + LENGTH, D_MODEL, seed=10 + seed).float()
        segment = Segment(torch.full((2,), block.memory_rows), LENGTH)
        wanted_BTD = block(c_BSD, segment, None)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found_BTD, _, aux = block(c_BSD, segment, None)
        loss = found_BTD.float().sum() + (0.0 if aux is None else aux)
        if loss.requires_grad:
            loss.backward()
        for name, parameter in block.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        assert found_BTD.isfinite().all()
        away = (found_BTD.float() - wanted_BTD).norm()
        assert away <= BFLOAT16 * wanted_BTD.norm(), (seed, away / wanted_BTD.norm())


CONTRACT: tuple[Callable[..., None], ...] = (
    delta_has_the_shape_of_the_segment,
    no_position_sees_a_later_one,
    what_mixes_tokens_says_so,
    streams_do_not_see_each_other,
    segments_do_not_matter,
    segments_may_be_read_at_once,
    a_reset_stream_begins_anew,
    no_gradient_flows_into_earlier_segments,
    an_evaluation_draws_no_random_number,
    a_finite_gradient_reaches_every_parameter,
    declared_flops_are_those_that_torch_counts,
    a_one_hot_supernet_slot_is_the_model_derived_from_it,
    what_streams_carry_returns_from_a_file,
    a_loaded_model_is_whole,
    bfloat16_is_near_float32,
)
