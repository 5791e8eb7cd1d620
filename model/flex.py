"""Relative attention by FlexAttention, which skips blocks of keys that no query sees.

Only its compiled form is fast, and only on a GPU does it have gradients. It drops no weights.

B batch   T segment length   M memory length   S = M + T keys   H heads   K head dim
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from model.relative import Parts, Place


def serves(device: torch.device, place: Place, rate: float) -> bool:
    """Whether nothing is dropped and, where gradients are needed, the device has them.

    While slots are compiled it does not: each would make its own mask of blocks.
    """
    differentiable = device.type == "cuda" or not torch.is_grad_enabled()
    return rate == 0 and differentiable and not torch.compiler.is_compiling()


def flex(parts: Parts, place: Place, rate: float) -> Tensor:
    """The attended values (B, T, H, K); see `serves`."""
    q_BTHK, k_BSHK, value_BSHK, r_SHK, u_HK, v_HK, mask_BTS = parts
    assert rate == 0, rate
    dtype = k_BSHK.dtype
    position_HNK = (q_BTHK + v_HK).to(dtype).permute(2, 0, 1, 3).flatten(1, 2)
    raw_HNS = position_HNK @ r_SHK.permute(1, 2, 0)
    raw_HBTS = raw_HNS.view(len(raw_HNS), *q_BTHK.shape[:2], -1)
    segment, last = q_BTHK.shape[1], k_BSHK.shape[1] - 1

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        # Row i of the distances S-1 ... 0 begins T-1-i places late.
        return score + raw_HBTS[h, b, i, torch.clamp(j + (segment - 1) - i, max=last)]

    block_mask = place.segment.once(
        ("blocks", place.memory, place.window), lambda: _blocks(mask_BTS)
    )
    attention: Any = flex_attention
    if q_BTHK.device.type == "cuda":
        attention = _compiled()
    out_BHTK: Tensor = attention(
        (q_BTHK + u_HK).to(dtype).transpose(1, 2),
        k_BSHK.transpose(1, 2),
        value_BSHK.transpose(1, 2),
        score_mod=score_mod,
        block_mask=block_mask,
        scale=1.0,
    )
    return out_BHTK.transpose(1, 2)


def _blocks(mask_BTS: Tensor) -> BlockMask:
    """Which blocks of keys the queries see; one mask for all streams where they are alike."""
    streams, queries, keys = mask_BTS.shape

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        # A mask of one stream is asked for every stream.
        return mask_BTS[b if streams > 1 else 0, i, j] == 0

    return create_block_mask(
        mask_mod, streams if streams > 1 else None, None, queries, keys, device=mask_BTS.device
    )


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=False)
