"""Keys and values that an evaluation caches, and attention that reads them where they lie.

B batch   T segment length   M memory length   S = M + T keys   H heads   K head dim
"""

import torch
from torch import Tensor

from model.attention_kernels import shifted


def append_to_kv_cache(cached_BH2MK: Tensor, new_BH2TK: Tensor) -> Tensor:
    """The M cached rows with T new ones behind them; (B, H, 2, S, K).

    The result is a view of a buffer with room behind it, and so is every part of it: rows are
    copied only when the room is used up. What follows the given rows in their buffer is written
    over, so a state can be read on from once.
    """
    if not cached_BH2MK.shape[3]:
        return new_BH2TK.contiguous()
    rows, fresh, width = cached_BH2MK.shape[3], new_BH2TK.shape[3], cached_BH2MK.shape[4]
    capacity = cached_BH2MK.stride(2) // width
    start = cached_BH2MK.storage_offset() // width
    if start + rows + fresh > capacity:
        room = rows + max(rows, 8 * fresh)
        buffer = new_BH2TK.new_empty(*cached_BH2MK.shape[:3], room, width)
        buffer[:, :, :, :rows] = cached_BH2MK
        cached_BH2MK, start = buffer, 0
    shape = (*cached_BH2MK.shape[:3], rows + fresh, width)
    whole_BH2SK = cached_BH2MK.as_strided(shape, cached_BH2MK.stride(), start * width)
    whole_BH2SK[:, :, :, rows:] = new_BH2TK
    return whole_BH2SK


def attend_cached(
    q_BTHK: Tensor, kv_BH2SK: Tensor, r_SHK: Tensor, u_HK: Tensor, v_HK: Tensor, mask_BTS: Tensor
) -> Tensor:
    """The attended values (B, T, H, K) as kernels give them, without gradients and dropout."""
    batch, segment, heads, width = q_BTHK.shape
    keys = kv_BH2SK.shape[3]
    k_PSK, value_PSK = kv_BH2SK.flatten(0, 1).unbind(1)
    content_PTK = (q_BTHK + u_HK).to(k_PSK.dtype).transpose(1, 2).flatten(0, 1)
    position_HNK = (q_BTHK + v_HK).to(k_PSK.dtype).permute(2, 0, 1, 3).flatten(1, 2)
    raw_HNS = torch.bmm(position_HNK, r_SHK.permute(1, 2, 0))
    position_HBTS = shifted(raw_HNS.view(heads * batch, segment, keys)).view(
        heads, batch, segment, keys
    )
    score_BHTS = torch.bmm(content_PTK, k_PSK.mT).view(batch, heads, segment, keys)
    score_BHTS.add_(position_HBTS.transpose(0, 1)).add_(mask_BTS[:, None])
    wide = torch.promote_types(k_PSK.dtype, torch.float32)
    weight_BHTS = torch.softmax(score_BHTS, -1, dtype=wide).to(k_PSK.dtype)
    out_PTK = torch.bmm(weight_BHTS.flatten(0, 1), value_PSK)
    return out_PTK.view(batch, heads, segment, width).transpose(1, 2)
