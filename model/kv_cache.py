"""Keys and values that an evaluation caches, and attention that reads them where they lie.

B batch   T segment length   M memory length   S = M + T keys   H heads   K head dim
G heads of keys and values   N = H / G   P pairs of stream and group   R rows of queries
"""

import torch
from torch import Tensor

from model.attention_kernels import shifted


def append_to_kv_cache(cached_BG2MK: Tensor, new_BG2TK: Tensor) -> Tensor:
    """The M cached rows with T new ones behind them; (B, H, 2, S, K).

    The result is a view of a buffer with room behind it, and so is every part of it: rows are
    copied only when the room is used up. What follows the given rows in their buffer is written
    over, so a state can be read on from once.
    """
    if not cached_BG2MK.shape[3]:
        return new_BG2TK.contiguous()
    rows, fresh, width = cached_BG2MK.shape[3], new_BG2TK.shape[3], cached_BG2MK.shape[4]
    capacity = cached_BG2MK.stride(2) // width
    start = cached_BG2MK.storage_offset() // width
    if start + rows + fresh > capacity:
        room = rows + max(rows, 8 * fresh)
        buffer = new_BG2TK.new_empty(*cached_BG2MK.shape[:3], room, width)
        buffer[:, :, :, :rows] = cached_BG2MK
        cached_BG2MK, start = buffer, 0
    shape = (*cached_BG2MK.shape[:3], rows + fresh, width)
    whole_BG2SK = cached_BG2MK.as_strided(shape, cached_BG2MK.stride(), start * width)
    whole_BG2SK[:, :, :, rows:] = new_BG2TK
    return whole_BG2SK


def attend_cached(
    q_BTHK: Tensor, kv_BG2SK: Tensor, r_SGK: Tensor, u_HK: Tensor, v_HK: Tensor, mask_BTS: Tensor
) -> Tensor:
    """The attended values (B, T, H, K) as kernels give them, without gradients and dropout.

    The N heads of queries that read one head of keys and values stand beside each other: they are
    rows of the same product.
    """
    batch, segment, heads, width = q_BTHK.shape
    groups, keys = kv_BG2SK.shape[1], kv_BG2SK.shape[3]
    shape_GN = (groups, heads // groups)
    k_PSK, value_PSK = kv_BG2SK.flatten(0, 1).unbind(1)

    def by_group(q_BTHK: Tensor) -> Tensor:
        return q_BTHK.to(k_PSK.dtype).reshape(batch, segment, *shape_GN, width)

    content_BGNTK = by_group(q_BTHK + u_HK).permute(0, 2, 3, 1, 4)
    position_GNBTK = by_group(q_BTHK + v_HK).permute(2, 3, 0, 1, 4)
    raw_GRS = torch.bmm(position_GNBTK.flatten(1, 3), r_SGK.permute(1, 2, 0))
    position_HBTS = shifted(raw_GRS.view(heads * batch, segment, keys)).view(
        heads, batch, segment, keys
    )
    score_PRS = torch.bmm(content_BGNTK.reshape(batch * groups, -1, width), k_PSK.mT)
    score_BHTS = score_PRS.view(batch, heads, segment, keys)
    score_BHTS.add_(position_HBTS.transpose(0, 1)).add_(mask_BTS[:, None])
    wide = torch.promote_types(k_PSK.dtype, torch.float32)
    weight_BHTS = torch.softmax(score_BHTS, -1, dtype=wide).to(k_PSK.dtype)
    out_PRK = torch.bmm(weight_BHTS.view(batch * groups, -1, keys), value_PSK)
    return out_PRK.view(batch, heads, segment, width).transpose(1, 2)
