"""The sides of the speed claims compute what they say: the same function, the stated arithmetic."""

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.reference.ceiling import Ceiling
from benchmarks.reference.textbook import Textbook, TextbookAttention, TextbookDense
from benchmarks.shapes import Shape
from benchmarks.sides import ADAM, arithmetic, cluster_shares, our_model
from model import LanguageModel, SoftmaxConfig

TINY = Shape(
    d_model=16, slots=4, n_heads=2, d_ffn=24, batch=3, segment=5, memory=4, dropout=0.0,
    vocabulary=40, cutoffs=(10, 20),
)  # fmt: skip


def textbook() -> Textbook:
    return Textbook(
        slots=TINY.slots, d_model=TINY.d_model, n_heads=TINY.n_heads, d_ffn=TINY.d_ffn,
        memory=TINY.memory, dropout=0.0, vocabulary=TINY.vocabulary, cutoffs=TINY.cutoffs,
    )  # fmt: skip


def copied(theirs: Textbook, ours: LanguageModel) -> None:
    """Give our model the textbook's weights."""
    with torch.no_grad():
        for block, slot in zip(theirs.blocks, ours.slots, strict=True):
            pairs: list[tuple[Tensor, Tensor]] = []
            if isinstance(block, TextbookAttention):
                own = slot.blocks["attention"]
                q, k, value = block.qkv.weight.chunk(3)
                pairs += [(own.query.weight, q), (own.key_value.weight, torch.cat([k, value]))]
                pairs += [(own.position.weight, block.position.weight)]
                pairs += [(own.output.weight, block.output.weight)]
                pairs += [(own.u_HK, block.u_HK), (own.v_HK, block.v_HK)]
            else:
                assert isinstance(block, TextbookDense)
                own = slot.blocks["dense"]
                for layer, theirs_layer in (
                    (own.inner, block.layers[0]),
                    (own.outer, block.layers[3]),
                ):
                    pairs += [(layer.weight, theirs_layer.weight), (layer.bias, theirs_layer.bias)]
            for mine, other in pairs:
                mine.copy_(other)
        ours.softmax.head.copy_(theirs.softmax.head.weight)
        for table, projection, tail in zip(
            ours.softmax.tables, ours.softmax.projections, theirs.softmax.tail, strict=True
        ):
            projection.copy_(tail[0].weight)
            table.copy_(tail[1].weight)


def test_the_textbook_computes_our_function() -> None:
    torch.manual_seed(0)
    theirs, ours = textbook().double(), our_model(TINY).double()
    for parameter in theirs.parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(std=0.3)
    copied(theirs, ours)
    ids = torch.randint(TINY.vocabulary, (TINY.batch, 4 * TINY.segment + 1))
    segments = [
        (ids[:, start : start + TINY.segment], ids[:, start + 1 : start + 1 + TINY.segment])
        for start in range(0, 4 * TINY.segment, TINY.segment)
    ]
    # The textbook attends to rows of zeros before the text, ours does not: both go on from here.
    _, state, _ = ours(segments[0][0], ours.initial_state(TINY.batch))
    theirs.memories = {
        slot: memory for slot, memory in enumerate(state.memory) if memory is not None
    }
    for input_BT, target_BT in segments[1:]:
        h_BTD, state, _ = ours(input_BT, state)
        wanted = ours.nll(h_BTD, target_BT).mean()
        torch.testing.assert_close(theirs.loss(input_BT, target_BT), wanted, rtol=0, atol=1e-12)
        assert {slot for slot, memory in enumerate(state.memory) if memory is not None} == {0, 2}
        assert theirs.memories.keys() == {0, 2}


def test_the_ceilings_arithmetic_is_what_torch_counts() -> None:
    ceiling = Ceiling(
        slots=TINY.slots, d_model=TINY.d_model, n_heads=TINY.n_heads, d_ffn=TINY.d_ffn,
        dropout=0.0, vocabulary=TINY.vocabulary, softmax=SoftmaxConfig(cutoffs=TINY.cutoffs),
        optimiser=ADAM,
    ).double()  # fmt: skip
    ids = torch.randint(TINY.cutoffs[0], (TINY.batch, TINY.segment))
    # The fused kernel is not counted.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        for block in ceiling.blocks:
            block(ceiling.softmax.embed(ids))
    shares = cluster_shares(TINY)
    ours = our_model(TINY).flops_per_token(TINY.batch, TINY.segment, shares)
    rest = 3 * (ours.softmax + ours.embedding)
    counted = counter.get_total_flops() / ids.numel()
    assert abs(arithmetic(TINY)["ceiling"] - rest - 3 * counted) < 1e-6 * counted
