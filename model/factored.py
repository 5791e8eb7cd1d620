"""Relative attention as plain attention with wider queries and keys: no bias, no shift.

With t_i = W_r^T (q_i + v), whose halves a and b belong to the sines and the cosines of R,

    (q_i + v) . W_r R_{i-j} = a . sin((i-j) w) + b . cos((i-j) w)
        = (a sin(i w) + b cos(i w)) . cos(j w) + (b sin(i w) - a cos(i w)) . sin(j w),

so queries [q + u; a sin + b cos; b sin - a cos] and keys [k; cos; sin] of width K + D give the
scores. It is exact where no distance is clamped, and needs no bias where every query sees all keys
up to itself. Flash attention takes heads up to 256 wide: K + D must not be more.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model.relative import Parts, Place
from model.segment import angles

FLASH_WIDEST = 256


def serves(device: torch.device, place: Place, rate: float) -> bool:
    """Whether the scores have this form, and nothing but later keys is hidden.

    torch's compiler cannot make the mask that keeps flash attention in the choice.
    """
    if torch.compiler.is_compiling():
        return False
    segment = place.segment
    keys = place.memory + segment.length
    clamped = place.clamp is not None and place.clamp < keys - 1
    return not clamped and segment.hides_later_keys_alone(place.memory, place.window)


def factored(parts: Parts, place: Place, rate: float) -> Tensor:
    """The attended values (B, T, H, K); see `serves`."""
    q_BTHE, k_BSHE = wide_queries(parts, place), wide_keys(parts, place)
    on_flash = q_BTHE.device.type == "cuda" and q_BTHE.shape[-1] <= FLASH_WIDEST
    return plain(q_BTHE, k_BSHE, parts.value_BSHK, rate, pad=on_flash)


def wide_queries(parts: Parts, place: Place) -> Tensor:
    """[q + u; a sin + b cos; b sin - a cos], in the dtype of the keys."""
    q_BTHK, dtype = parts.q_BTHK, parts.k_BSHK.dtype
    w_r_HKD = place.position_ED.view(*q_BTHK.shape[2:], -1)
    t_BTHD = torch.einsum("bthk,hkd->bthd", (q_BTHK + parts.v_HK).to(dtype), w_r_HKD.to(dtype))
    sin_SP, cos_SP = _turns(place, t_BTHD)
    sin_T1P, cos_T1P = sin_SP[place.memory :, None], cos_SP[place.memory :, None]
    pairs = sin_SP.shape[1]
    a_BTHP, b_BTHP = t_BTHD[..., :pairs], t_BTHD[..., pairs:]
    # An odd width has one cosine less.
    b_BTHP = F.pad(b_BTHP, (0, pairs - b_BTHP.shape[3]))
    to_cos_BTHP = a_BTHP * sin_T1P + b_BTHP * cos_T1P
    to_sin_BTHP = b_BTHP * sin_T1P - a_BTHP * cos_T1P
    return torch.cat([part.to(dtype) for part in (q_BTHK + parts.u_HK, to_cos_BTHP, to_sin_BTHP)],
                     dim=-1)  # fmt: skip


def wide_keys(parts: Parts, place: Place) -> Tensor:
    """[k; cos; sin], the same angles in every stream and head."""
    k_BSHK = parts.k_BSHK
    sin_SP, cos_SP = _turns(place, k_BSHK)
    turn_SP2 = torch.cat([cos_SP, sin_SP], dim=-1).to(k_BSHK.dtype)
    turn_BSHP2 = turn_SP2[:, None].expand(*k_BSHK.shape[:3], -1)
    return torch.cat([k_BSHK, turn_BSHP2], dim=-1)


def plain(q_BTHE: Tensor, k_BSHE: Tensor, value_BSHK: Tensor, rate: float, *, pad: bool) -> Tensor:
    """Causal attention of the last T of S positions.

    Args:
        q_BTHE: queries, scaled.
        k_BSHE: keys.
        value_BSHK: values.
        rate: dropout of the attention weights.
        pad: give the values the queries' width, which flash attention asks for.
    """
    # Two seconds of loading that no other path needs.
    from torch.nn.attention.bias import causal_lower_right

    width = value_BSHK.shape[3]
    if pad:
        value_BSHK = F.pad(value_BSHK, (0, q_BTHE.shape[3] - width))
    # It is a tensor of a type of its own, from which torch chooses the kernel.
    causal: Tensor = causal_lower_right(q_BTHE.shape[1], k_BSHE.shape[1])
    out_BHTK = F.scaled_dot_product_attention(
        q_BTHE.transpose(1, 2),
        k_BSHE.transpose(1, 2),
        value_BSHK.transpose(1, 2),
        attn_mask=causal,
        dropout_p=rate,
        scale=1.0,
    )
    return out_BHTK[..., :width].transpose(1, 2)


def _turns(place: Place, like: Tensor) -> tuple[Tensor, Tensor]:
    """The sines and cosines of the positions 0 ... S-1, in float32 or wider; (S, P) each."""
    segment, width = place.segment, place.position_ED.shape[1]
    wide = torch.promote_types(like.dtype, torch.float32)

    def make() -> tuple[Tensor, Tensor]:
        position_S = torch.arange(place.memory + segment.length, dtype=wide, device=like.device)
        angle_SP = angles(position_S, width)
        return angle_SP.sin(), angle_SP.cos()

    return segment.once(("turns", place.memory, width, wide), make)
