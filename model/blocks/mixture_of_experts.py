"""A mixture of dense blocks, of which each token uses a few (Shazeer et al. 2017).

"Outrageously Large Neural Networks", arXiv 1701.06538.

R tokens of all streams   D d_model   E experts   K of them for each token
"""

import torch
from torch import Tensor, nn

from model.blocks.base import AddUp, Numbers, linear
from model.blocks.dense import DenseBlock
from model.blocks.options import MixtureOfExpertsOptions
from model.ops import Dropout
from model.state import Segment


class MixtureOfExpertsBlock(nn.Module):
    """sum_e g_e f_e(x) over the k experts of largest W_g x; their gates g are a softmax over them.

    The gate of one expert alone (k = 1) is its probability among all experts, as in the Switch
    Transformer (Fedus et al. 2021, arXiv 2101.03961, Eq. 1-2). No expert has a capacity, so that no
    token depends on another one. The auxiliary loss is `balance_loss` E sum_e s_e p_e, with the
    share s of the choices that fall on an expert and its mean probability p, both over the tokens
    that are computed at once (there, Eq. 4): of a micro-batch, or of one process's streams.

    Differs from the paper: no noise on the gates; the loss is the later, simpler one.
    """

    memory_rows = 0
    adds_nothing = False
    count_E: Tensor
    last_count_E: Tensor

    def __init__(self, options: MixtureOfExpertsOptions, d_model: int, dropout: Dropout) -> None:
        super().__init__()
        self.k, self.balance_loss = options.k, options.balance_loss
        self.gate = linear(d_model, options.n_experts, bias=False)
        blocks = (DenseBlock(options, d_model, dropout) for _ in range(options.n_experts))
        self.experts = nn.ModuleList(blocks)
        # Of the choices in this step and in the one before.
        for name in ("count_E", "last_count_E"):
            self.register_buffer(name, torch.zeros(options.n_experts), persistent=False)

    def forward(self, c_BSD: Tensor, segment: Segment, state: None) -> tuple[Tensor, None, Tensor]:
        """Every token of the segment by itself."""
        x_BTD = c_BSD[:, c_BSD.shape[1] - segment.length :]
        x_RD = x_BTD.flatten(0, 1)
        # In float32 at least: in bfloat16 near logits are ties.
        wide = torch.promote_types(x_RD.dtype, torch.float32)
        with torch.autocast(x_RD.device.type, enabled=False):
            logit_RE = x_RD.to(wide) @ self.gate.weight.to(wide).T
        gate_RK, expert_RK = choose_experts(logit_RE, self.k)
        gate_RK = gate_RK.to(x_RD.dtype)
        out_RD = torch.zeros_like(x_RD)
        of_expert = expert_RK[..., None] == torch.arange(logit_RE.shape[1], device=x_RD.device)
        count_E = of_expert.sum((0, 1))
        choice_C = expert_RK.flatten().argsort(stable=True)
        # A GPU is waited for here alone: how many tokens each expert gets. Of no numbers, as many.
        if count_E.is_meta:
            parts = torch.tensor_split(choice_C, len(self.experts))
        else:
            parts = torch.split(choice_C, count_E.tolist())
        for expert, choice_N in zip(self.experts, parts, strict=True):
            row_N = choice_N // self.k
            chosen_1ND = x_RD[row_N][None]
            delta_1ND, _, _ = expert(chosen_1ND, Segment(segment.seen_B, len(row_N)), None)
            gated_ND = (gate_RK.flatten()[choice_N, None] * delta_1ND[0]).to(out_RD.dtype)
            out_RD = out_RD.index_add(0, row_N, gated_ND)
        return out_RD.view_as(x_BTD), None, self._balance(logit_RE, count_E)

    def _balance(self, logit_RE: Tensor, count_E: Tensor) -> Tensor:
        tokens, experts = logit_RE.shape
        probability_E = logit_RE.softmax(dim=1).mean(dim=0)
        count_E = count_E.to(probability_E.dtype)
        # As of routing's centres: a search's own pass for alpha is none of the weights' steps.
        if self.training and self.gate.weight.requires_grad:
            self.count_E += count_E.detach().to(self.count_E.dtype)
        share_E = count_E / (tokens * self.k)
        return self.balance_loss * experts * (share_E * probability_E).sum()

    @torch.no_grad()
    def after_step(self, add_up: AddUp) -> None:
        """Keep what all processes counted in the step."""
        add_up([self.count_E])
        self.last_count_E.copy_(self.count_E)
        self.count_E.zero_()

    def describe(self) -> Numbers:
        """Of each expert its part of the choices in the last step."""
        if not bool(self.last_count_E.any()):
            return {}
        return {"load": (self.last_count_E / self.last_count_E.sum()).tolist()}

    def flops(self, batch: int, segment: int, memory: int) -> float:
        """The gate, and k experts."""
        expert = self.experts[0]
        assert isinstance(expert, DenseBlock)
        return 2.0 * self.gate.weight.numel() + self.k * expert.flops(batch, segment, memory)


def choose_experts(logit_RE: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The gates and the numbers of the k experts that each token uses."""
    top_RK, expert_RK = logit_RE.topk(k, dim=-1)
    if k > 1:
        return top_RK.softmax(dim=-1), expert_RK
    # A softmax over one logit is 1: the router would hear nothing of the text's loss.
    return logit_RE.softmax(dim=-1).gather(-1, expert_RK), expert_RK
