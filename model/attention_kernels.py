"""The exact ways to compute relative attention (Dai et al. 2019, section 3.3), and the KV cache.

score_ij = (q_i + u) . k_j + (q_i + v) . r_{M+i-j}, out_i = sum_j softmax_j(score_ij) value_j.
Without relative positions there are no u, v and r, and the score is q_i . k_j.

B batch   T segment length   M memory length   S = M + T keys   H heads   K head dim
G heads of keys and values   Q = H / G   P pairs of stream and group   R rows of queries
N vectors that all queries see
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from model.ops import keep

ALWAYS = "with_bias"
# By device, as measured (docs/benchmarks.md); on others nothing has been measured yet.
FASTEST = {"cpu": "fused", "cuda": "with_bias"}


class AttentionInputs(NamedTuple):
    """What a kernel reads; the scale 1/sqrt(K) is in q, u and v already.

    r_SHK are the projected encodings of the distances S-1 ... 0, u the content and v the position
    bias. What is added to the scores is the mask, 0 or -inf, and what a clamp of turned keys
    changes; its first two axes may be 1. `plain_BTHK` are the queries as they meet keys without a
    position; None: those that meet all others.
    """

    q_BTHK: Tensor
    k_BSHK: Tensor
    value_BSHK: Tensor
    r_SHK: Tensor | None
    u_HK: Tensor | None
    v_HK: Tensor | None
    added_BHTS: Tensor
    plain_BTHK: Tensor | None = None


def content_queries(q_BTHK: Tensor, u_HK: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What meets keys, (B, H, T, K): q + u, or q."""
    content_BTHK = q_BTHK if u_HK is None else q_BTHK + u_HK
    return content_BTHK.to(dtype).transpose(1, 2)


def score_bias(inputs: AttentionInputs) -> Tensor:
    """What is added to the scores of the content; the first two axes may be 1."""
    added_BHTS = inputs.added_BHTS.to(inputs.q_BTHK.dtype)
    if inputs.r_SHK is None:
        return added_BHTS
    assert inputs.v_HK is not None
    return position_scores(inputs.q_BTHK + inputs.v_HK, inputs.r_SHK) + added_BHTS


def fused(inputs: AttentionInputs, rate: float) -> Tensor:
    """Relative positions, with a backward pass of its own; with dropout only on a CPU."""
    out: Tensor = _Fused.apply(*inputs[:7], rate)  # type: ignore[no-untyped-call]
    return out


def with_bias(inputs: AttentionInputs, rate: float) -> Tensor:
    """F.scaled_dot_product_attention; its bias is the dense mask, and position scores if any."""
    k_BSHK = inputs.k_BSHK
    out_BHTK = F.scaled_dot_product_attention(
        content_queries(inputs.q_BTHK, inputs.u_HK, k_BSHK.dtype),
        k_BSHK.transpose(1, 2),
        inputs.value_BSHK.transpose(1, 2),
        attn_mask=score_bias(inputs).to(k_BSHK.dtype),
        dropout_p=rate,
        scale=1.0,
    )
    return out_BHTK.transpose(1, 2)


def position_scores(q_BTHK: Tensor, r_SHK: Tensor) -> Tensor:
    """q_i . r_{M+i-j} for every j <= M + i; what stands at a later j has no meaning.

    The product has the distances in its columns, S-1 first; row i is shifted left by T-1-i by
    padding a column and reading the same numbers with rows one shorter (Dai et al., appendix B).
    """
    batch, segment, heads, _ = q_BTHK.shape
    q_HNK = q_BTHK.permute(2, 0, 1, 3).flatten(1, 2)
    raw_HBTS = (q_HNK @ r_SHK.permute(1, 2, 0)).view(heads, batch, segment, -1)
    padded = F.pad(raw_HBTS.transpose(0, 1), (1, 0))
    keys = r_SHK.shape[0]
    rolled = padded.reshape(batch, heads, keys + 1, segment)[:, :, 1:]
    return rolled.reshape(batch, heads, segment, keys)


def shifted(raw_PTS: Tensor) -> Tensor:
    """Row i of each matrix shifted left by T-1-i, as a view: its rows are S-1 apart.

    The first T-1 numbers of a matrix are not seen. The last number of a row is also the first of
    the next one, so a row may be read whole but written only without it, the last row apart.
    """
    matrices, segment, keys = raw_PTS.shape
    strides = (segment * keys, keys - 1, 1)
    return raw_PTS.as_strided((matrices, segment, keys), strides, segment - 1)


class _Fused(torch.autograd.Function):
    """All products over (head, stream) pairs P = H B at once, in place where nothing needs it.

    The heads stand first, so that one product gives the position scores of all streams.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_BTHK: Tensor,
        k_BSHK: Tensor,
        value_BSHK: Tensor,
        r_SHK: Tensor,
        u_HK: Tensor,
        v_HK: Tensor,
        added_BHTS: Tensor,
        rate: float,
    ) -> Tensor:
        batch, segment, heads, width = q_BTHK.shape
        keys = k_BSHK.shape[1]
        q_HBTK = q_BTHK.permute(2, 0, 1, 3)
        content_PTK = _plus(q_HBTK, u_HK).flatten(0, 1)
        position_HNK = _plus(q_HBTK, v_HK).view(heads, batch * segment, width)
        k_PSK = k_BSHK.permute(2, 0, 1, 3).flatten(0, 1)
        value_PSK = value_BSHK.permute(2, 0, 1, 3).flatten(0, 1)
        r_HSK = r_SHK.transpose(0, 1)
        raw_PTS = torch.bmm(position_HNK, r_HSK.mT).view(heads * batch, segment, keys)
        score_PTS = torch.baddbmm(shifted(raw_PTS), content_PTK, k_PSK.mT)
        score_PTS.view(heads, batch, segment, keys).add_(added_BHTS.transpose(0, 1))
        wide = torch.promote_types(score_PTS.dtype, torch.float32)
        weight_PTS = torch.softmax(score_PTS, -1, dtype=wide).to(score_PTS.dtype)
        keep_PTS, ctx.factor = keep(weight_PTS, rate) if rate else (None, 1.0)
        kept_PTS = weight_PTS if keep_PTS is None else weight_PTS * keep_PTS
        out_PTK = torch.bmm(kept_PTS, value_PSK)
        if keep_PTS is not None:
            out_PTK.mul_(ctx.factor)
        ctx.save_for_backward(
            content_PTK, position_HNK, k_PSK, value_PSK, r_HSK, weight_PTS, keep_PTS
        )
        return out_PTK.view(heads, batch, segment, width).permute(1, 2, 0, 3)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_BTHK: Tensor) -> tuple[Tensor | None, ...]:
        content_PTK, position_HNK, k_PSK, value_PSK, r_HSK, weight_PTS, keep_PTS = ctx.saved_tensors
        batch, segment, heads, width = grad_BTHK.shape
        grad_PTK = grad_BTHK.permute(2, 0, 1, 3).flatten(0, 1).to(value_PSK.dtype)
        kept_PTS = weight_PTS
        if keep_PTS is not None:
            kept_PTS, grad_PTK = weight_PTS * keep_PTS, grad_PTK * ctx.factor
        value_grad_PSK = torch.bmm(kept_PTS.mT, grad_PTK)
        weight_grad_PTS = torch.bmm(grad_PTK, value_PSK.mT)
        if keep_PTS is not None:
            weight_grad_PTS.mul_(keep_PTS)
        score_grad_PTS = torch._softmax_backward_data(
            weight_grad_PTS, weight_PTS, -1, weight_PTS.dtype
        )
        content_grad_PTK = torch.bmm(score_grad_PTS, k_PSK)
        k_grad_PSK = torch.bmm(score_grad_PTS.mT, content_PTK)
        raw_grad_HNS = _unshifted(score_grad_PTS).view(heads, batch * segment, -1)
        position_grad_HNK = torch.bmm(raw_grad_HNS, r_HSK)
        # A search's own pass for alpha asks for the gradient of no weight.
        needs_r, needs_u, needs_v = ctx.needs_input_grad[3:6]
        r_grad_HSK = torch.bmm(raw_grad_HNS.mT, position_HNK) if needs_r else None
        content_grad = content_grad_PTK.view(heads, batch, segment, width)
        position_grad = position_grad_HNK.view(heads, batch, segment, width)
        q_grad_BTHK = torch.empty_like(grad_BTHK, memory_format=torch.contiguous_format)
        torch.add(content_grad, position_grad, out=q_grad_BTHK.permute(2, 0, 1, 3))
        return (
            q_grad_BTHK,
            k_grad_PSK.view(heads, batch, -1, width).permute(1, 2, 0, 3),
            value_grad_PSK.view(heads, batch, -1, width).permute(1, 2, 0, 3),
            None if r_grad_HSK is None else r_grad_HSK.transpose(0, 1),
            content_grad.sum((1, 2)) if needs_u else None,
            position_grad.sum((1, 2)) if needs_v else None,
            None,
            None,
        )


def _unshifted(grad_PTS: Tensor) -> Tensor:
    """The gradient of what `shifted` was given."""
    raw_grad_PTS = torch.empty_like(grad_PTS)
    raw_grad_PTS.flatten(1)[:, : grad_PTS.shape[1] - 1].zero_()
    # Two threads would write what two rows share; but for the last row it is a later key's, 0.
    shifted(raw_grad_PTS)[..., :-1].copy_(grad_PTS[..., :-1])
    raw_grad_PTS[:, -1, -1] = grad_PTS[:, -1, -1]
    return raw_grad_PTS


def _plus(q_HBTK: Tensor, bias_HK: Tensor) -> Tensor:
    """The queries plus a bias of each head, contiguous, in the queries' dtype."""
    out_HBTK = q_HBTK.new_empty(q_HBTK.shape)
    return torch.add(q_HBTK, bias_HK[:, None, None].to(q_HBTK.dtype), out=out_HBTK)


Kernel = Callable[[AttentionInputs, float], Tensor]
KERNELS: dict[str, Kernel] = {"with_bias": with_bias, "fused": fused}


def select_kernel(device: torch.device, rate: float, asked: str | None, relative: bool) -> Kernel:
    """The kernel asked for, or the device's fastest; `with_bias` where that cannot serve.

    `fused` has relative positions and drops attention weights on a CPU alone, and a compiler finds
    more in `with_bias`.
    """
    serves = (device.type == "cpu" or rate == 0) and not torch.compiler.is_compiling() and relative
    return KERNELS[(asked or FASTEST.get(device.type, ALWAYS)) if serves else ALWAYS]


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
    r_SGK: Tensor | None,
    u_HK: Tensor | None,
    v_HK: Tensor | None,
    added_BHTS: Tensor,
    plain_BTHK: Tensor | None = None,
    persistent_2NHK: Tensor | None = None,
) -> Tensor:
    """The attended values (B, T, H, K) as kernels give them, without gradients and dropout.

    The Q heads of queries that read one head of keys and values stand beside each other: they are
    rows of the same product. Persistent keys and values share their softmax; they have no position
    and no mask, meet the plain queries, and one copy serves all streams.
    """
    batch, segment, heads, width = q_BTHK.shape
    keys, dtype = kv_BG2SK.shape[3], kv_BG2SK.dtype
    k_PSK, value_PSK = kv_BG2SK.flatten(0, 1).unbind(1)
    content_BHTK = content_queries(q_BTHK, u_HK, dtype)
    score_PRS = torch.bmm(content_BHTK.reshape(len(k_PSK), -1, width), k_PSK.mT)
    score_BHTS = score_PRS.view(batch, heads, segment, keys)
    if r_SGK is not None:
        assert v_HK is not None
        score_BHTS.add_(_cached_position_scores((q_BTHK + v_HK).to(dtype), r_SGK))
    score_BHTS.add_(added_BHTS)
    if persistent_2NHK is not None:
        key_HNK, value_HNK = persistent_2NHK.to(dtype).transpose(1, 2)
        met_BTHK = q_BTHK if plain_BTHK is None else plain_BTHK
        score_BHTN = _by_head(content_queries(met_BTHK, u_HK, dtype), key_HNK.mT)
        score_BHTS = torch.cat([score_BHTS, score_BHTN], dim=-1)
    wide = torch.promote_types(dtype, torch.float32)
    weight_BHTS = torch.softmax(score_BHTS, -1, dtype=wide).to(dtype)
    weight_PRS = weight_BHTS[..., :keys].reshape(len(k_PSK), -1, keys)
    out_BHTK = torch.bmm(weight_PRS, value_PSK).view(batch, heads, segment, width)
    if persistent_2NHK is not None:
        out_BHTK.add_(_by_head(weight_BHTS[..., keys:], value_HNK))
    return out_BHTK.transpose(1, 2)


def _cached_position_scores(q_BTHK: Tensor, r_SGK: Tensor) -> Tensor:
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
