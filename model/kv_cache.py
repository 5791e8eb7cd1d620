"""Keys and values that an evaluation caches, and attention that reads them where they lie.

B batch   T segment length   M memory length   S = M + T keys   H heads   K head dim
G heads of keys and values   Q = H / G   P pairs of stream and group   R rows of queries
N vectors that all queries see
"""

import torch
from torch import Tensor

from model.attention_kernels import shifted


def append_to_kv_cache(cached_BG2MK: Tensor, new_BG2TK: Tensor) -> Tensor:
    """The M cached rows with T new ones behind them; (B, H, 2, S, K).

    The result is a view of a buffer with room behind it, and so is every part of it: rows are
    copied only when the room is used up. It is an eighth of the rows, or the segment where that is
    more: a copied row costs far less than one that is attended to. What follows the given rows in
    their buffer is written over, so a state can be read on from once.
    """
    if not cached_BG2MK.shape[3]:
        return new_BG2TK.contiguous()
    rows, fresh, width = cached_BG2MK.shape[3], new_BG2TK.shape[3], cached_BG2MK.shape[4]
    capacity = cached_BG2MK.stride(2) // width
    start = cached_BG2MK.storage_offset() // width
    if start + rows + fresh > capacity:
        capacity = rows + max(rows // 8, fresh)
        buffer = new_BG2TK.new_empty(*cached_BG2MK.shape[:3], capacity, width)
        buffer[:, :, :, :rows] = cached_BG2MK
        cached_BG2MK, start = buffer, 0
    shape = (*cached_BG2MK.shape[:3], rows + fresh, width)
    whole_BG2SK = cached_BG2MK.as_strided(shape, cached_BG2MK.stride(), start * width)
    whole_BG2SK[:, :, :, rows:] = new_BG2TK
    return whole_BG2SK


def attend_cached(
    q_BTHK: Tensor,
    kv_BG2SK: Tensor,
    r_SGK: Tensor,
    u_HK: Tensor,
    v_HK: Tensor,
    mask_BTS: Tensor,
    persistent_2NHK: Tensor | None = None,
) -> Tensor:
    """The attended values (B, T, H, K) as kernels give them, without gradients and dropout.

    The Q heads of queries that read one head of keys and values stand beside each other: they are
    rows of the same product. Persistent keys and values share their softmax; they have no position
    and no mask, and one copy serves all streams.
    """
    batch, segment, heads, width = q_BTHK.shape
    keys, dtype = kv_BG2SK.shape[3], kv_BG2SK.dtype
    k_PSK, value_PSK = kv_BG2SK.flatten(0, 1).unbind(1)
    content_BHTK = (q_BTHK + u_HK).to(dtype).transpose(1, 2)
    score_PRS = torch.bmm(content_BHTK.reshape(len(k_PSK), -1, width), k_PSK.mT)
    score_BHTS = score_PRS.view(batch, heads, segment, keys)
    position_BHTS = _position_scores((q_BTHK + v_HK).to(dtype), r_SGK)
    score_BHTS.add_(position_BHTS).add_(mask_BTS[:, None])
    if persistent_2NHK is not None:
        key_HNK, value_HNK = persistent_2NHK.to(dtype).transpose(1, 2)
        score_BHTN = _by_head(content_BHTK, key_HNK.mT)
        score_BHTS = torch.cat([score_BHTS, score_BHTN], dim=-1)
    wide = torch.promote_types(dtype, torch.float32)
    weight_BHTS = torch.softmax(score_BHTS, -1, dtype=wide).to(dtype)
    weight_PRS = weight_BHTS[..., :keys].reshape(len(k_PSK), -1, keys)
    out_BHTK = torch.bmm(weight_PRS, value_PSK).view(batch, heads, segment, width)
    if persistent_2NHK is not None:
        out_BHTK.add_(_by_head(weight_BHTS[..., keys:], value_HNK))
    return out_BHTK.transpose(1, 2)


def _position_scores(q_BTHK: Tensor, r_SGK: Tensor) -> Tensor:
    """q_i . r_{M+i-j} as a view (B, H, T, S); what stands at a later j has no meaning."""
    batch, segment, heads, _ = q_BTHK.shape
    keys, groups, _ = r_SGK.shape
    q_BTGQK = q_BTHK.reshape(batch, segment, groups, heads // groups, -1)
    q_GQBTK = q_BTGQK.permute(2, 3, 0, 1, 4)
    raw_GRS = torch.bmm(q_GQBTK.flatten(1, 3), r_SGK.permute(1, 2, 0))
    score_XTS = shifted(raw_GRS.view(heads * batch, segment, keys))
    return score_XTS.view(heads, batch, segment, keys).transpose(0, 1)


def _by_head(rows_BHTX: Tensor, of_head_HXY: Tensor) -> Tensor:
    """The product with what all streams share of a head; (B, H, T, Y)."""
    batch, heads, segment, _ = rows_BHTX.shape
    rows_HRX = rows_BHTX.transpose(0, 1).flatten(1, 2)
    out_HRY = torch.bmm(rows_HRX, of_head_HXY)
    return out_HRY.view(heads, batch, segment, -1).transpose(0, 1)
