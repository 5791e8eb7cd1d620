"""A form of every kind of block that a graph of any batch and length can hold.

B batch   T segment length   R = B * T tokens   D d_model   H heads   K head dim   V = K
E channels of a convolution, or experts   W width of a kernel
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan

from export.attention import (
    AdaptiveSpanForm,
    AllAttentionForm,
    AttentionForm,
    Form,
    RoutingForm,
)
from model.blocks import BLOCKS
from model.blocks.adaptive_span import AdaptiveSpanBlock
from model.blocks.all_attention import AllAttentionBlock
from model.blocks.attention import AttentionBlock
from model.blocks.dense import DenseBlock
from model.blocks.gated_delta import GatedDeltaBlock
from model.blocks.identity import IdentityBlock
from model.blocks.linear_attention import LinearAttentionBlock
from model.blocks.mixture_of_experts import MixtureOfExpertsBlock, choose_experts
from model.blocks.persistent import PersistentBlock
from model.blocks.product_key_memory import ProductKeyMemoryBlock
from model.blocks.routing import RoutingBlock
from model.blocks.short_conv import ShortConvBlock
from model.state import Segment


class RecurrentForm(Form):
    """A block with a matrix as its state, of which the recurrence runs token by token.

    Chunks would need a loop over a number of them that the graph does not know, and their
    triangular system an operation that ONNX lacks.
    """

    def __init__(self, block: GatedDeltaBlock | LinearAttentionBlock) -> None:
        super().__init__()
        self.block = block
        # What the block calls, in the place of `model.blocks.linear_attention`.
        block.recurrence = delta_by_token if isinstance(block, GatedDeltaBlock) else decay_by_token

    def forward(
        self, c_BTD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor, None]:
        """As the block."""
        return self.block(c_BTD, segment, state)


def decay_by_token(
    q_BHTK: Tensor, k_BHTK: Tensor, value_BHTV: Tensor, log_decay_BHT: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """`model.blocks.linear_attention.decayed` as its definition."""

    def step(state_BHKV: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        q_BHK, k_BHK, value_BHV, log_decay_BH = token
        kept_BHKV = log_decay_BH.exp()[..., None, None] * state_BHKV
        state_BHKV = kept_BHKV + k_BHK[..., :, None] * value_BHV[..., None, :]
        return state_BHKV, (q_BHK[..., None, :] @ state_BHKV)[..., 0, :]

    return _run(step, state_BHKV, q_BHTK, k_BHTK, value_BHTV, log_decay_BHT)


def delta_by_token(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    value_BHTV: Tensor,
    beta_BHT: Tensor,
    log_decay_BHT: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """`model.blocks.linear_attention.gated_delta` as its definition."""

    def step(state_BHKV: Tensor, token: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        q_BHK, k_BHK, value_BHV, beta_BH, log_decay_BH = token
        kept_BHKV = log_decay_BH.exp()[..., None, None] * state_BHKV
        found_BHV = (k_BHK[..., None, :] @ kept_BHKV)[..., 0, :]
        added_BHV = beta_BH[..., None] * (value_BHV - found_BHV)
        state_BHKV = kept_BHKV + k_BHK[..., :, None] * added_BHV[..., None, :]
        return state_BHKV, (q_BHK[..., None, :] @ state_BHKV)[..., 0, :]

    return _run(step, state_BHKV, q_BHTK, k_BHTK, value_BHTV, beta_BHT, log_decay_BHT)


def _run(
    step: Callable[..., tuple[Tensor, Tensor]], state_BHKV: Tensor, *rows: Tensor
) -> tuple[Tensor, Tensor]:
    tokens = tuple(row.movedim(2, 0) for row in rows)
    if torch.compiler.is_exporting():
        # It wants the state laid out as what a step gives.
        state_BHKV, read_TBHV = scan(step, state_BHKV.contiguous(), tokens)
        return read_TBHV.movedim(0, 2), state_BHKV
    # Outside of an export `scan` would call the compiler.
    read = []
    for token in zip(*tokens, strict=True):
        state_BHKV, read_BHV = step(state_BHKV, token)
        read.append(read_BHV)
    return torch.stack(read, dim=2), state_BHKV


class MixtureOfExpertsForm(Form):
    """Every expert for every token, with a gate of 0 for those that a token does not use."""

    def __init__(self, block: MixtureOfExpertsBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, c_BTD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """Every token of the segment by itself."""
        logit_BTE = F.linear(c_BTD, self.block.gate.weight)
        gate_BTK, expert_BTK = choose_experts(logit_BTE, self.block.k)
        gate_BTE = torch.zeros_like(logit_BTE).scatter(-1, expert_BTK, gate_BTK)
        delta_BTD = torch.zeros_like(c_BTD)
        for number, expert in enumerate(self.block.experts):
            expert_BTD, _, _ = expert(c_BTD, segment, None)
            delta_BTD = delta_BTD + gate_BTE[..., number, None] * expert_BTD
        return delta_BTD, None, None


class ProductKeyMemoryForm(Form):
    """The values of a token are gathered and summed, where the block has one operation for both."""

    def __init__(self, block: ProductKeyMemoryBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, c_BTD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, None]:
        """Every token of the segment by itself."""
        weight_RM, number_RM = self.block.read(c_BTD.flatten(0, 1))
        value_RMD = F.embedding(number_RM, self.block.value_ND)
        return (weight_RM[:, None] @ value_RMD).view_as(c_BTD), None, None


def _in_one_part(block: DenseBlock) -> DenseBlock:
    # The parts are for memory, and their number would depend on the length.
    block.chunk = 1
    return block


def _as_it_is(block: nn.Module) -> nn.Module:
    return block


# A kind that is not in here is refused by its name.
FORMS: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    AttentionBlock: AttentionForm,
    DenseBlock: _in_one_part,
    IdentityBlock: _as_it_is,
    ShortConvBlock: _as_it_is,
    GatedDeltaBlock: RecurrentForm,
    LinearAttentionBlock: RecurrentForm,
    AdaptiveSpanBlock: AdaptiveSpanForm,
    AllAttentionBlock: AllAttentionForm,
    PersistentBlock: _as_it_is,
    RoutingBlock: RoutingForm,
    MixtureOfExpertsBlock: MixtureOfExpertsForm,
    ProductKeyMemoryBlock: ProductKeyMemoryForm,
}


def form_of(block: nn.Module) -> nn.Module:
    """The form of a block; ValueError names a kind that has none."""
    if (form := FORMS.get(type(block))) is None:
        names = [name for name, kind in BLOCKS.items() if kind.class_name == type(block).__name__]
        kind = names[0] if names else type(block).__name__
        raise ValueError(
            f"{kind}: no graph of any batch and length can hold this kind yet; derive a layout "
            "without it, or give it a form in export/blocks.py"
        )
    return form(block)
