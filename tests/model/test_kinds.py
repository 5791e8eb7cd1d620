"""What each kind computes, against plain formulas and the kinds that it becomes at its limits.

B batch   T segment length   S = M + T keys   D d_model   H heads   K head dim   N vectors
V width of values
"""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model import Candidate
from model.blocks.adaptive_span import AdaptiveSpanBlock
from model.blocks.gated_delta import GatedDeltaBlock
from model.blocks.linear_attention import LinearAttentionBlock, decayed, gated_delta
from model.blocks.persistent import PersistentBlock
from model.blocks.product_key_memory import ProductKeyMemoryBlock
from model.blocks.routing import RoutingBlock
from model.blocks.short_conv import ShortConvBlock
from model.slot import Slot
from model.state import Segment
from tests.model.contract import apply, slot_of
from tests.model.tiny import D_MODEL, candidate, normal

LENGTH = 7


def alone_in_training(tensors: Sequence[Tensor]) -> None:
    """What one process adds up with others: nothing."""


def block_of(slot: Slot, kind: str) -> Any:
    return slot.blocks[kind]


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def alone(made: Candidate, c_BTD: Tensor) -> tuple[Any, Tensor]:
    """A random block, and its delta for streams that begin with these normed inputs."""
    block = block_of(slot_of(made), made.label)
    rows = block.memory_rows
    memory = normal(c_BTD.shape[0], rows, D_MODEL, seed=9)
    segment = Segment(torch.zeros(len(c_BTD), dtype=torch.int64), c_BTD.shape[1])
    return block, block(torch.cat([memory, c_BTD], dim=1), segment, None)[0]


def test_short_conv_is_a_gated_sum_of_its_last_inputs() -> None:
    c_BTD = normal(2, LENGTH, D_MODEL)
    block, delta_BTD = alone(candidate("short_conv", kernel=3), c_BTD)
    assert isinstance(block, ShortConvBlock)
    b_BTD, gate_BTD, value_BTD = (c_BTD @ block.inner.weight.T).chunk(3, dim=2)
    u_BTD = b_BTD * value_BTD
    for t in range(LENGTH):
        sums_BD = sum(
            block.kernel_WD[2 - back] * u_BTD[:, t - back] for back in range(min(3, t + 1))
        )
        close(delta_BTD[:, t], (gate_BTD[:, t] * sums_BD) @ block.outer.weight.T)


@pytest.mark.parametrize("positions", ["relative", "learned"])
@pytest.mark.parametrize("sees_itself", [True, False])
def test_a_query_may_leave_out_its_own_key_and_distances_may_be_learned(
    positions: str, sees_itself: bool
) -> None:
    """Before a stream stand rows of zeros, which a query sees where it does not see itself."""
    c_TD, span, first = normal(6, D_MODEL), 4, int(not sees_itself)
    made = candidate("adaptive_span", span=span, ramp=2, n_heads=1, positions=positions,
                     sees_itself=sees_itself)  # fmt: skip
    block, _ = alone(made, c_TD[None])
    with torch.no_grad():
        block.span_H.fill_(2.5 / span)
        block.attention.u_HK.zero_()
        block.attention.v_HK.zero_()
    attention, rows = block.attention, block.memory_rows
    assert rows == span - 1 + first
    # What stands in rows before a stream is no token, whatever a norm made of it.
    memory = normal(1, rows, D_MODEL, seed=9)
    segment = Segment(torch.tensor([0]), 6)
    delta_TD = block(torch.cat([memory, c_TD[None]], dim=1), segment, None)[0][0]
    assert math.ceil(2.5) + 2 >= span == block.reach()
    encodings = Segment(torch.tensor([0]), 9).encodings(0, D_MODEL, None, torch.float64)
    for t in range(6):
        weights, values = [], []
        for x in range(span):
            at = t - first - x
            if at < 0 and sees_itself:
                continue
            row_D = c_TD[at] if at >= 0 else torch.zeros_like(c_TD[0])
            k_K, value_K = (attention.key_value.weight @ row_D).chunk(2)
            if positions == "learned":
                r_K = attention.distance_LK[x]
            else:
                r_K = attention.position(encodings[-1 - first - x])
            score = (attention.query.weight @ c_TD[t]) @ (k_K + r_K) * D_MODEL**-0.5
            weights.append(min(max((2 + 2.5 - x) / 2, 0.0), 1.0) * math.exp(score.item()))
            values.append(value_K)
        wanted_K = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
        close(delta_TD[t], attention.output.weight @ wanted_K)


def test_trimming_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = slot_of(candidate("adaptive_span", span=9, ramp=2))
    block = block_of(slot, "adaptive_span")
    with torch.no_grad():
        block.span_H.copy_(torch.tensor([0.1, 0.35]))
    assert block.reach() == 6
    x_BTD = normal(2, LENGTH, D_MODEL)
    trimmed = apply(slot, x_BTD, seen=8)
    monkeypatch.setattr(AdaptiveSpanBlock, "reach", lambda self: 9)
    close(apply(slot, x_BTD, seen=8), trimmed)


def test_the_span_loss_is_a_part_of_the_mean_span_and_spans_stay_between_their_ends() -> None:
    made = candidate("adaptive_span", span=10, ramp=2, span_loss=0.01)
    block = block_of(slot_of(made), "adaptive_span")
    with torch.no_grad():
        block.span_H.copy_(torch.tensor([0.2, 0.6]))
    rows = normal(1, 9 + 3, D_MODEL)
    aux = block(rows, Segment(torch.tensor([9]), 3), None)[2]
    assert aux.item() == pytest.approx(0.01 * 10 * 0.4)
    with torch.no_grad():
        block.span_H.copy_(torch.tensor([-0.2, 1.6]))
    block.after_step(alone_in_training)
    assert block.span_H.tolist() == [0.0, 1.0]
    assert block.describe() == {"span_keys": [0.0, 10.0]}
    block.costliest()
    assert block.describe() == {"span_keys": [10.0, 10.0]}


def test_persistent_vectors_are_a_softmax_over_keys_of_their_own() -> None:
    c_BTD = normal(2, LENGTH, D_MODEL)
    block, delta_BTD = alone(candidate("persistent", n_vectors=5, n_heads=2), c_BTD)
    assert isinstance(block, PersistentBlock)
    key_NHK, value_NHK = block.vectors.key_NHK * 2.0, block.vectors.value_NHK * 5**0.5
    q_BTHK = (c_BTD @ block.query.weight.T).view(2, LENGTH, 2, 4)
    weight_BTHN = torch.einsum("bthk,nhk->bthn", q_BTHK / 2.0, key_NHK).softmax(dim=-1)
    out_BTHK = torch.einsum("bthn,nhk->bthk", weight_BTHN, value_NHK)
    close(delta_BTD, out_BTHK.flatten(2) @ block.outer.weight.T)


def test_gated_delta_is_its_recurrence() -> None:
    c_BTD = normal(2, LENGTH, D_MODEL)
    block, delta_BTD = alone(candidate("gated_delta", n_heads=2, kernel=2), c_BTD)
    assert isinstance(block, GatedDeltaBlock)
    inner = c_BTD @ block.inner.weight.T
    mixed, gate, beta, step = inner.split([3 * D_MODEL, D_MODEL, 2, 2], dim=2)
    before = torch.cat([torch.zeros_like(mixed[:, :1]), mixed[:, :-1]], dim=1)
    q, k, value = F.silu(block.kernel_WE[0] * before + block.kernel_WE[1] * mixed).chunk(3, dim=2)
    for stream in range(2):
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            state = torch.zeros(4, 4, dtype=torch.float64)
            for t in range(LENGTH):
                q_K, k_K = (F.normalize(rows[stream, t, part], dim=0) for rows in (q, k))
                b = torch.sigmoid(beta[stream, t, head])
                rate = F.softplus(step[stream, t, head] + block.step_bias_H[head])
                a = torch.exp(-block.log_rate_H[head].exp() * rate)
                state = a * (state - b * torch.outer(k_K, k_K @ state))
                state = state + b * torch.outer(k_K, value[stream, t, part])
                o_K = (q_K / 2.0) @ state
                normed_K = o_K / (o_K.square().mean() + 1e-5).sqrt() * block.norm.weight
                out_K = normed_K * F.silu(gate[stream, t, part])
                found = _head_inputs(block.outer.weight, delta_BTD[stream, t])[part]
                close(found, out_K)


def _head_inputs(weight: Tensor, delta_D: Tensor) -> Tensor:
    """What the last projection was given."""
    return torch.linalg.solve(weight, delta_D)


def test_linear_attention_is_a_decayed_sum() -> None:
    c_BTD = normal(1, LENGTH, D_MODEL)
    block, delta_BTD = alone(candidate("linear_attention", n_heads=2), c_BTD)
    assert isinstance(block, LinearAttentionBlock)
    q, k, value, gate = (c_BTD[0] @ block.inner.weight.T).chunk(4, dim=1)
    for head in range(2):
        part, a = slice(4 * head, 4 * head + 4), torch.sigmoid(block.decay_logit_H[head])
        for t in range(LENGTH):
            o_K = sum(
                a ** (t - j) * (q[t, part] @ k[j, part]) / 2.0 * value[j, part]
                for j in range(t + 1)
            )
            normed_K = o_K / (o_K.square().mean() + 1e-5).sqrt() * block.norm.weight
            found = _head_inputs(block.outer.weight, delta_BTD[0, t])[part]
            torch.testing.assert_close(found, normed_K * F.silu(gate[t, part]), rtol=0, atol=1e-10)


def routed(made: Candidate, c_BTD: Tensor) -> tuple[Any, Tensor]:
    block, delta_BTD = alone(made, c_BTD)
    assert isinstance(block, RoutingBlock)
    return block, delta_BTD


@pytest.mark.parametrize(("clusters", "keys"), [(1, 99), (3, 99), (3, 2)])
def test_a_query_reads_the_latest_keys_of_its_cluster(clusters: int, keys: int) -> None:
    """With one cluster and all keys it is attention with shared queries and keys."""
    made = candidate("routing", n_heads=2, n_local_heads=0, clusters=clusters, keys=keys)
    c_BTD = normal(2, LENGTH, D_MODEL)
    block, delta_BTD = routed(made, c_BTD)
    q_BTE, value_BTE = (c_BTD @ block.query_value.weight.T).chunk(2, dim=2)
    for stream in range(2):
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            q_TK, value_TK = q_BTE[stream, :, part], value_BTE[stream, :, part]
            k_TK = q_TK / q_TK.norm(dim=1, keepdim=True)
            cluster_T = (k_TK @ block.mu_HCK[head].T).argmax(dim=1)
            for t in range(LENGTH):
                before = [j for j in range(t) if cluster_T[j] == cluster_T[t]]
                read = before[max(0, len(before) - (keys - 1)) :] or [t]
                weight = torch.stack([q_TK[t] @ k_TK[j] / 2.0 for j in read]).softmax(dim=0)
                out_K = sum(w * value_TK[j] for w, j in zip(weight, read, strict=True))
                found = _head_inputs(block.output.weight, delta_BTD[stream, t])[part]
                torch.testing.assert_close(found, out_K, rtol=0, atol=1e-10)


def test_local_heads_are_attention_in_a_window_and_are_added_to_routing_heads() -> None:
    keys, c_BTD = 3, normal(1, LENGTH, D_MODEL)
    sizes = {"d_head": 4, "clusters": 2, "keys": keys}
    block, delta_BTD = routed(candidate("routing", n_heads=3, n_local_heads=2, **sizes), c_BTD)
    alone_made = candidate("routing", n_heads=1, n_local_heads=0, **sizes)
    routing = block_of(slot_of(alone_made), "routing")
    routing.load_state_dict({k: v for k, v in block.state_dict().items() if "local" not in k})
    near = candidate("attention", n_heads=2, d_head=4, window=keys, memory=keys - 1)
    local = block_of(slot_of(near), "attention")
    local.load_state_dict(block.local.state_dict())
    wanted_BTD = torch.zeros_like(delta_BTD)
    for part in (routing, local):
        memory = normal(1, part.memory_rows, D_MODEL, seed=9)
        segment = Segment(torch.zeros(1, dtype=torch.int64), LENGTH)
        wanted_BTD = wanted_BTD + part(torch.cat([memory, c_BTD], dim=1), segment, None)[0]
    torch.testing.assert_close(delta_BTD, wanted_BTD, rtol=0, atol=1e-10)


def test_centres_move_towards_the_keys_that_choose_them_in_training_alone() -> None:
    made = candidate("routing", n_heads=1, n_local_heads=0, clusters=3, memory=0, decay=0.9)
    slot, x_BTD = slot_of(made), normal(2, LENGTH, D_MODEL)
    block, c_BTD = block_of(slot, "routing"), slot.norms["routing"](x_BTD)
    k_RK = F.normalize((c_BTD @ block.query_value.weight.T).chunk(2, dim=2)[0], dim=2).flatten(0, 1)
    with torch.no_grad():
        block.mu_HCK[0] = torch.stack([k_RK[0], k_RK[1], torch.zeros(D_MODEL)])
    before = block.mu_HCK.clone()
    slot.eval()
    apply(slot, x_BTD)
    block.after_step(alone_in_training)
    assert torch.equal(block.mu_HCK, before)
    slot.train()
    cluster_R = (k_RK @ before[0].T).argmax(dim=1)
    apply(slot, x_BTD)
    block.after_step(alone_in_training)
    for cluster in (0, 1):
        mean_K = F.normalize(k_RK[cluster_R == cluster].sum(dim=0), dim=0)
        wanted_K = F.normalize(0.9 * before[0, cluster] + 0.1 * mean_K, dim=0)
        close(block.mu_HCK[0, cluster], wanted_K)
    assert torch.equal(block.mu_HCK[0, 2], before[0, 2])
    assert not block.count_HC.any()


def test_centres_move_by_the_keys_of_all_processes() -> None:
    made = candidate("routing", n_heads=2, clusters=3, memory=0, decay=0.5)
    slots = [slot_of(made) for _ in range(3)]
    blocks, x_BTD = [block_of(slot, "routing") for slot in slots], normal(4, LENGTH, D_MODEL)
    for slot, block, rows in zip(slots, blocks, (slice(4), slice(2), slice(2, 4)), strict=True):
        block.mu_HCK.copy_(blocks[0].mu_HCK)
        apply(slot.train(), x_BTD[rows])
    whole, one, other = blocks
    theirs = [other.sum_HCK.clone(), other.count_HC.clone()]

    def add_up(tensors: Sequence[Tensor]) -> None:
        for tensor, part in zip(tensors, theirs, strict=True):
            tensor.add_(part)

    one.after_step(add_up)
    other.after_step(alone_in_training)
    whole.after_step(alone_in_training)
    close(one.mu_HCK, whole.mu_HCK)
    assert not torch.allclose(other.mu_HCK, whole.mu_HCK)


def test_a_pass_that_trains_no_weights_moves_no_centre() -> None:
    slot = slot_of(candidate("routing", memory=0)).train()
    block = block_of(slot, "routing")
    for parameter in slot.parameters():
        parameter.requires_grad_(False)
    apply(slot, normal(2, LENGTH, D_MODEL))
    assert not block.count_HC.any()


def test_the_best_two_experts_of_a_token_share_it_and_an_even_use_costs_least() -> None:
    c_BTD = normal(2, LENGTH, D_MODEL)
    made = candidate("mixture_of_experts", n_experts=4, k=2, balance_loss=0.5)
    block, delta_BTD = alone(made, c_BTD)
    segment = Segment(torch.zeros(2), LENGTH)
    deltas = [expert(c_BTD, segment, None)[0] for expert in block.experts]
    logit_BTE = c_BTD @ block.gate.weight.T
    counts = torch.zeros(4, dtype=torch.float64)
    for stream in range(2):
        for t in range(LENGTH):
            first, second = logit_BTE[stream, t].argsort(descending=True)[:2].tolist()
            counts[[first, second]] += 1
            ratio = (logit_BTE[stream, t, second] - logit_BTE[stream, t, first]).exp()
            wanted_D = (deltas[first] + ratio * deltas[second])[stream, t] / (1 + ratio)
            close(delta_BTD[stream, t], wanted_D)
    mean_E = logit_BTE.softmax(dim=2).mean(dim=(0, 1))
    aux = block(c_BTD, segment, None)[2]
    close(aux, 0.5 * 4 * (counts / counts.sum() @ mean_E))
    with torch.no_grad():
        block.gate.weight.zero_()
    assert block(c_BTD, segment, None)[2].item() == pytest.approx(0.5)


def test_one_expert_alone_has_its_probability_as_its_gate_so_that_the_router_learns() -> None:
    c_BTD = normal(2, LENGTH, D_MODEL)
    block, delta_BTD = alone(candidate("mixture_of_experts", n_experts=3, k=1), c_BTD)
    segment = Segment(torch.zeros(2), LENGTH)
    expert_EBTD = torch.stack([expert(c_BTD, segment, None)[0] for expert in block.experts])
    gate_BT, best_BT = (c_BTD @ block.gate.weight.T).softmax(dim=2).max(dim=2)
    for stream in range(2):
        for t in range(LENGTH):
            wanted_D = gate_BT[stream, t] * expert_EBTD[best_BT[stream, t], stream, t]
            close(delta_BTD[stream, t], wanted_D)
    (gradient_ED,) = torch.autograd.grad(delta_BTD.sum(), [block.gate.weight])
    assert gradient_ED.abs().max() > 0.01


def test_product_keys_find_what_all_pairs_of_keys_would_find() -> None:
    c_BTD = normal(2, LENGTH, D_MODEL)
    made = candidate("product_key_memory", heads=2, n_keys=5, k=3, d_key=2)
    block, delta_BTD = alone(made, c_BTD)
    assert isinstance(block, ProductKeyMemoryBlock)
    q_BTHE = block.norm((c_BTD @ block.query.weight.T).view(2, LENGTH, 2, 4))
    out_BTD = torch.zeros_like(delta_BTD)
    for head in range(2):
        one_NW, two_NW = block.key_H2NW[head]
        key_PE = torch.cat([one_NW.repeat_interleave(5, dim=0), two_NW.repeat(5, 1)], dim=1)
        best, place = (q_BTHE[:, :, head] @ key_PE.T).topk(3, dim=2)
        out_BTD += (best.softmax(dim=2)[..., None] * block.value_ND[place]).sum(dim=2)
    close(delta_BTD, out_BTD)


B, H, K, V = 2, 3, 5, 4


def inputs(length: int) -> dict[str, Tensor]:
    return {
        "q_BHTK": normal(B, H, length, K, seed=1),
        "k_BHTK": F.normalize(normal(B, H, length, K, seed=2), dim=-1),
        "value_BHTV": normal(B, H, length, V, seed=3),
        "beta_BHT": torch.sigmoid(normal(B, H, length, seed=4)),
        "log_decay_BHT": -F.softplus(2 * normal(B, H, length, seed=5) - 3),
        "state_BHKV": normal(B, H, K, V, seed=6),
    }


def token_by_token(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    value_BHTV: Tensor,
    log_decay_BHT: Tensor,
    state_BHKV: Tensor,
    beta_BHT: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    outs = []
    for t in range(q_BHTK.shape[2]):
        k_BHK1, value_BH1V = k_BHTK[:, :, t, :, None], value_BHTV[:, :, t, None]
        decay = log_decay_BHT[:, :, t, None, None].exp()
        if beta_BHT is None:
            state_BHKV = decay * state_BHKV + k_BHK1 * value_BH1V
        else:
            beta = beta_BHT[:, :, t, None, None]
            forgotten = k_BHK1 @ (k_BHK1.mT @ state_BHKV)
            state_BHKV = decay * (state_BHKV - beta * forgotten) + beta * k_BHK1 * value_BH1V
        outs.append((q_BHTK[:, :, t, None] @ state_BHKV)[:, :, 0])
    return torch.stack(outs, dim=2), state_BHKV


@pytest.mark.parametrize("length", [1, 5, 64, 65, 150])
@pytest.mark.parametrize("chunked", [decayed, gated_delta])
def test_chunks_give_what_the_recurrence_gives(chunked: object, length: int) -> None:
    given = inputs(length)
    if chunked is decayed:
        given.pop("beta_BHT")
    for tensor in given.values():
        tensor.requires_grad_()
    gradients = []
    for compute in (chunked, token_by_token):
        assert callable(compute)
        out, state = compute(**given)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        loss = (out * weights).sum() + state.square().sum()
        gradients.append([out, state, *torch.autograd.grad(loss, [*given.values()])])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("chunked", [decayed, gated_delta])
def test_a_decay_to_almost_nothing_is_no_overflow(chunked: object) -> None:
    given = {name: tensor.float() for name, tensor in inputs(130).items()}
    given["log_decay_BHT"] = torch.full((B, H, 130), -20.0, requires_grad=True)
    if chunked is decayed:
        given.pop("beta_BHT")
    assert callable(chunked)
    out, state = chunked(**given)
    (gradient,) = torch.autograd.grad(out.sum() + state.sum(), [given["log_decay_BHT"]])
    assert out.isfinite().all()
    assert gradient.isfinite().all()
