"""Linear attention with a decay: a state of constant size in the place of a memory.

Recurrences with a matrix as their state are computed in chunks of products, not token by token.

B batch   T segment length   D d_model   H heads   K width of queries and keys (head dim)
V width of values   N chunks of C tokens
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks.base import linear
from model.blocks.options import LinearAttentionOptions
from model.ops import Dropout, project, without_autocast
from model.state import Segment

# As in the papers; a shorter segment is one chunk.
CHUNK = 64


def decayed(
    q_BHTK: Tensor, k_BHTK: Tensor, value_BHTV: Tensor, log_decay_BHT: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """S_t = a_t S_{t-1} + k_t v_t^T and o_t = S_t^T q_t, with log a_t given and at most 0.

    In a chunk, with the decay d_ij from j to i, o_i = d_i0 S_0^T q_i + sum_{j<=i} d_ij (q_i . k_j)
    v_j (retention, Sun et al. 2023, arXiv 2307.08621, Eq. 7).

    Returns:
        What is read (B, H, T, V), and the last state.
    """
    length = q_BHTK.shape[2]
    q_BHNCK, k_BHNCK, value_BHNCV = (_chunks(x, length) for x in (q_BHTK, k_BHTK, value_BHTV))
    decay = _Decays(_chunks(log_decay_BHT[..., None], length)[..., 0])
    return _read(q_BHNCK, k_BHNCK, value_BHNCV, decay, None, state_BHKV, length)


def gated_delta(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    value_BHTV: Tensor,
    beta_BHT: Tensor,
    log_decay_BHT: Tensor,
    state_BHKV: Tensor,
) -> tuple[Tensor, Tensor]:
    """S_t = a_t (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T and o_t = S_t^T q_t.

    The gated delta rule (Yang et al. 2024, arXiv 2412.06464, Eq. 10). What a token adds is
    k_t u_t^T with u_t = b_t (v_t - a_t S_{t-1}^T k_t): in a chunk the u are the solution of
    (I + A) u = b (v - d_0 S_0^T k), with A_ij = b_i d_ij (k_i . k_j) below the diagonal.
    """
    length = q_BHTK.shape[2]
    q_BHNCK, k_BHNCK, value_BHNCV = (_chunks(x, length) for x in (q_BHTK, k_BHTK, value_BHTV))
    beta_BHNC1 = _chunks(beta_BHT[..., None], length)
    decay = _Decays(_chunks(log_decay_BHT[..., None], length)[..., 0])
    scaled_BHNCK = beta_BHNC1 * k_BHNCK
    below_BHNCC = torch.tril((scaled_BHNCK @ k_BHNCK.mT) * decay.between_BHNCC, diagonal=-1)
    from_start_BHNCK = scaled_BHNCK * decay.since_start_BHNC1
    right = torch.cat([beta_BHNC1 * value_BHNCV, from_start_BHNCK], dim=-1)
    # The diagonal of ones is not read.
    solved = torch.linalg.solve_triangular(below_BHNCC, right, upper=False, unitriangular=True)
    added_BHNCV, read_BHNCK = solved.split([value_BHNCV.shape[-1], k_BHNCK.shape[-1]], dim=-1)
    return _read(q_BHNCK, k_BHNCK, added_BHNCV, decay, read_BHNCK, state_BHKV, length)


class _Decays:
    """Products of decays within chunks, from the sums of their logarithms."""

    def __init__(self, log_decay_BHNC: Tensor) -> None:
        sum_BHNC = log_decay_BHNC.cumsum(-1)
        difference_BHNCC = sum_BHNC[..., :, None] - sum_BHNC[..., None, :]
        # Above the diagonal a product would be of growths, and could overflow.
        self.between_BHNCC = difference_BHNCC.tril().exp().tril()
        self.since_start_BHNC1 = sum_BHNC[..., None].exp()
        self.to_end_BHNC1 = (sum_BHNC[..., -1:] - sum_BHNC)[..., None].exp()


def _read(
    q_BHNCK: Tensor,
    k_BHNCK: Tensor,
    added_BHNCV: Tensor,
    decay: _Decays,
    read_BHNCK: Tensor | None,
    state_BHKV: Tensor,
    length: int,
) -> tuple[Tensor, Tensor]:
    """Chunk by chunk what queries read and how the state goes on.

    What is added is taken as it is, or less what `read` finds in the state at the chunk's start.
    """
    within_BHNCC = (q_BHNCK @ k_BHNCK.mT) * decay.between_BHNCC
    from_start_BHNCK = q_BHNCK * decay.since_start_BHNC1
    to_end_BHNCK = k_BHNCK * decay.to_end_BHNC1
    outs = []
    for chunk in range(q_BHNCK.shape[2]):
        added_BHCV = added_BHNCV[:, :, chunk]
        if read_BHNCK is not None:
            added_BHCV = added_BHCV - read_BHNCK[:, :, chunk] @ state_BHKV
        old_BHCV = from_start_BHNCK[:, :, chunk] @ state_BHKV
        outs.append(old_BHCV + within_BHNCC[:, :, chunk] @ added_BHCV)
        kept_BHKV = state_BHKV * decay.since_start_BHNC1[:, :, chunk, -1:]
        state_BHKV = kept_BHKV + to_end_BHNCK[:, :, chunk].mT @ added_BHCV
    return torch.cat(outs, dim=2)[:, :, :length], state_BHKV


def _chunks(rows_BHTX: Tensor, length: int) -> Tensor:
    """(B, H, N, C, X); zeros behind the last token add nothing and decay nothing."""
    chunk = min(CHUNK, length)
    count = -(-length // chunk)
    padded = F.pad(rows_BHTX, (0, 0, 0, count * chunk - length))
    return padded.view(*padded.shape[:2], count, chunk, padded.shape[3])


def products(length: int, heads: int, width: int, value_width: int, *, delta: bool) -> float:
    """FLOPs per token of a segment: of matrix products, and of the solution of the chunks."""
    chunk = min(CHUNK, length)
    count = -(-length // chunk)
    pairs, states = float(chunk * (width + value_width)), 2 * width * value_width
    if delta:
        pairs += chunk * width + chunk * (width + value_width) / 2
        states += width * value_width
    return 2.0 * heads * (pairs + states) * count * chunk / length


class LinearAttentionBlock(nn.Module):
    """W_o (silu(W_g x) * norm(o)) with S_t = a S_{t-1} + k_t v_t^T and o_t = S_t^T q_t, by head.

    Retention (Sun et al. 2023, arXiv 2307.08621, section 2.2). The state S carries over segments.

    Differs from the paper: the decays a begin as there, 1 - 2^(-5-h), and are trained; queries and
    keys are not rotated by their positions.
    """

    memory_rows = 0
    adds_nothing = False
    carries_state = True
    # As in `GatedDeltaBlock`.
    recurrence = staticmethod(decayed)

    def __init__(self, options: LinearAttentionOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.n_heads, self.d_head = options.n_heads, options.d_head
        width = self.n_heads * self.d_head
        self.inner = linear(d_model, 4 * width, bias=False)
        self.outer = linear(width, d_model, bias=False)
        self.norm = nn.RMSNorm(self.d_head, eps=1e-5)
        decay_H = 1.0 - 2.0 ** (-5.0 - torch.arange(self.n_heads) % 8)
        self.decay_logit_H = nn.Parameter(decay_H.logit())

    def forward(
        self, c_BSD: Tensor, segment: Segment, state: Tensor | None
    ) -> tuple[Tensor, Tensor, None]:
        """The state holds S, (B, H, K, K), in float32 or wider."""
        inner_BTE = project(c_BSD, self.inner.weight)
        wide = torch.promote_types(inner_BTE.dtype, torch.float32)
        heads_BT4HK = inner_BTE.view(*inner_BTE.shape[:2], 4, self.n_heads, self.d_head)
        q_BHTK, k_BHTK, value_BHTK, gate_BHTK = heads_BT4HK.permute(2, 0, 3, 1, 4).to(wide)
        k_BHTK = segment.without_padding(k_BHTK, axis=2) * self.d_head**-0.5
        if state is None:
            state = q_BHTK.new_zeros(*q_BHTK.shape[:2], self.d_head, self.d_head)
        log_decay_H = F.logsigmoid(self.decay_logit_H.to(wide))
        log_decay_BHT = log_decay_H[:, None].expand(q_BHTK.shape[:3])
        # Sums over many tokens: bfloat16 has too few digits for them.
        with without_autocast(c_BSD.device):
            out_BHTK, state = self.recurrence(q_BHTK, k_BHTK, value_BHTK, log_decay_BHT, state)
        gated_BHTK = self.norm(out_BHTK) * F.silu(gate_BHTK)
        gated_BTE = gated_BHTK.transpose(1, 2).flatten(2).to(inner_BTE.dtype)
        return project(gated_BTE, self.outer.weight), state, None

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """Projections, and the products of the chunks."""
        projections = 2.0 * (self.inner.weight.numel() + self.outer.weight.numel())
        width = self.d_head
        return projections + products(segment, self.n_heads, width, width, delta=False)
