"""The laws of the design, one named test or more for each; details are tested beside the parts."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from data import EvaluationStreams
from model import LanguageModel
from model.state import Segment
from nas.search.config import HARD
from nas.search.estimators import ESTIMATORS, all_terms, gumbel_noise, one_hot_net, soft_net
from tests import tiny
from training.evaluation import evaluate
from utils.pi import softmax

LEARNING_HARD = sorted(HARD.keys() - {"spos"})


@torch.no_grad()
def _run(model: LanguageModel, ids_BT: Tensor, mix=None) -> Tensor:  # type: ignore[no-untyped-def]
    h_BTD, _, _ = model(ids_BT, model.initial_state(len(ids_BT)), mix)
    return model.log_prob(h_BTD)


def _ids(rows: int, length: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(tiny.VOCABULARY, (rows, length), generator=generator)


def test_law_1_a_slot_adds_the_weighted_deltas_to_its_input() -> None:
    net = tiny.supernet(slots=1)
    slot, x_BTD = net.slots[0], torch.randn(2, 4, 8, dtype=torch.float64)
    state = net.initial_state(2)

    def out(*terms: tuple[int, Tensor | None]) -> Tensor:
        segment = Segment(state.seen_B, x_BTD.shape[1])
        return slot(x_BTD, state.memory[0], segment, state.blocks[0], terms)[0]

    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    deltas = [out((k, None)) - x_BTD for k in range(3)]
    expected = x_BTD + sum(w * delta for w, delta in zip(weights, deltas, strict=True))
    assert torch.allclose(out(*enumerate(weights)), expected, atol=1e-12)
    assert torch.equal(deltas[2], torch.zeros_like(x_BTD))
    assert float(deltas[0].detach().abs().max()) > 1e-3
    assert float(deltas[1].detach().abs().max()) > 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_law_2_random_futures_change_nothing_before_them(estimator: str) -> None:
    net = tiny.supernet().eval()
    mix = ESTIMATORS[estimator](torch.randn(3, 3).double(), gumbel_noise(0, 0, 3, 3), 0.7)
    ids_BT = _ids(2, 9)
    before = _run(net, ids_BT, mix)
    for t in (1, 4, 8):
        changed_BT = ids_BT.clone()
        changed_BT[:, t:] = _ids(2, 9, seed=t + 1)[:, t:]
        assert not torch.equal(changed_BT, ids_BT)
        after = _run(net, changed_BT, mix)
        assert float((after - before)[:, :t].abs().max()) < 1e-12
        assert float((after - before)[:, t:].abs().max()) > 1e-6


@pytest.mark.parametrize("tie_blocks", [None, 1, 2, 3])
def test_law_3_the_one_hot_supernet_is_the_derived_model_also_where_slots_share_weights(
    tie_blocks: int | None,
) -> None:
    """By every estimator; for every kind by the contract of blocks."""
    chosen = tiny.candidates("attention", "dense", "identity")
    net = tiny.language_model([chosen] * 4, tie_blocks=tie_blocks).eval()
    weights = net.state_dict()
    for layout in ((0, 0, 1, 1), (0, 1, 1, 0), (2, 1, 0, 0), (1, 1, 2, 1)):
        slots = [[chosen[k]] for k in layout]
        derived = tiny.language_model(slots, seed=1, tie_blocks=tie_blocks).eval()
        derived.load_state_dict({name: weights[name] for name in derived.state_dict()})
        alpha_LC = 60.0 * one_hot(torch.tensor(layout), 3).double()
        # The noise favours the candidate as well, because spos draws by it alone.
        noise_LC = gumbel_noise(0, 0, 4, 3).double() + alpha_LC
        mixes = [mix(alpha_LC, noise_LC, 0.3) for mix in ESTIMATORS.values()]
        net_state, derived_state = net.initial_state(2), derived.initial_state(2)
        for part in range(3):
            ids_BT = _ids(2, 4, seed=part)
            expected, derived_state, _ = derived(ids_BT, derived_state)
            for mix in (*mixes, soft_net(alpha_LC)):
                near, _, _ = net(ids_BT, net_state, mix)
                assert float((near - expected).detach().abs().max()) < 1e-6
            found, net_state, _ = net(ids_BT, net_state, one_hot_net(alpha_LC))
            assert float((found - expected).detach().abs().max()) < 1e-12


def test_law_4_segments_of_any_length_agree() -> None:
    chosen = tiny.candidates("attention", "dense", window=4, memory=3)
    model = tiny.language_model([[chosen[k]] for k in (0, 1, 0)]).eval()
    ids_BT = _ids(2, 21)
    whole = _run(model, ids_BT)
    for segment in (1, 3, 7):
        state, parts = model.initial_state(2), []
        for piece in ids_BT.split(segment, dim=1):
            h_BTD, state, _ = model(piece, state)
            parts.append(model.log_prob(h_BTD))
        assert float((torch.cat(parts, 1) - whole).detach().abs().max()) < 1e-12


def _windowed() -> tuple[LanguageModel, int]:
    """Two attention slots with a window of 4, and their receptive field less one."""
    chosen = tiny.candidates("attention", "dense", window=4, memory=3)
    return tiny.language_model([[chosen[k]] for k in (0, 1, 0)]), 2 * (4 - 1)


def test_law_5_any_segments_and_streams_with_context_give_the_same_nats_of_each_token() -> None:
    model, context = _windowed()
    tokens = np.random.default_rng(0).integers(0, tiny.VOCABULARY, 431).astype(np.uint16)
    lengths_V = torch.arange(tiny.VOCABULARY)
    found = []
    for streams in (1, 4, 10):
        for segment in (1, 32, 200):
            text = EvaluationStreams(tokens, streams=streams, segment=segment, context=context)
            result = evaluate(model, text, byte_length_V=lengths_V, device=torch.device("cpu"))
            assert result.tokens == len(tokens) - 1
            assert result.bytes == int(tokens[1:].sum())
            found.append(result.nats)
    assert max(found) - min(found) < 1e-9
    for less in (context - 1, 0):
        cuts = [
            EvaluationStreams(tokens, streams=4, segment=segment, context=less)
            for segment in (1, 32)
        ]
        one, other = (
            evaluate(model, cut, byte_length_V=lengths_V, device=torch.device("cpu")).nats
            for cut in cuts
        )
        assert abs(one - other) < 1e-9 < abs(one - found[0])


def test_law_5_evaluation_draws_no_random_number_and_repeats_itself() -> None:
    net = tiny.supernet()
    for slot in net.slots:
        slot.dropout = 0.5
    net.train()
    tokens = _ids(1, 101)[0].numpy().astype(np.uint16)
    text = EvaluationStreams(tokens, streams=3, segment=8)
    before = torch.get_rng_state()
    lengths_V = torch.ones(tiny.VOCABULARY, dtype=torch.int64)
    mix = soft_net(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).double())
    results = [
        evaluate(net, text, byte_length_V=lengths_V, device=torch.device("cpu"), mix=mix)
        for _ in range(2)
    ]
    assert results[0] == results[1]
    assert torch.equal(before, torch.get_rng_state())
    assert net.training


def test_law_5_a_uniform_model_has_the_perplexity_of_its_vocabulary_and_8_bits_per_byte() -> None:
    config = tiny.model_config(softmax={})
    model = LanguageModel(
        [[tiny.candidates("identity")[0]]], d_model=8, vocabulary_size=256, softmax=config.softmax
    )
    torch.nn.init.zeros_(model.softmax.head)
    tokens = np.arange(256).astype(np.uint16)
    result = evaluate(
        model,
        EvaluationStreams(tokens, streams=3, segment=7),
        byte_length_V=torch.ones(256, dtype=torch.int64),
        device=torch.device("cpu"),
    )
    assert result.perplexity == pytest.approx(256, rel=1e-5)
    assert result.bits_per_byte == pytest.approx(8, rel=1e-5)


def test_law_6_pi_is_softmax_alpha_and_noise_never_enters_it() -> None:
    alpha_LC = torch.randn(4, 3)
    assert np.allclose(softmax(alpha_LC.numpy()), torch.softmax(alpha_LC, -1).numpy(), atol=1e-7)
    weights = [[float(w) for _, w in terms if w is not None] for terms in soft_net(alpha_LC)]
    assert np.allclose(weights, torch.softmax(alpha_LC, -1).numpy(), atol=1e-7)


def _loss(net: LanguageModel, mix, batch) -> Tensor:  # type: ignore[no-untyped-def]
    h_BTD, _, _ = net(batch.input_BT, net.initial_state(len(batch.input_BT)), mix)
    return net.nll(h_BTD, batch.target_BT).mean()


@pytest.mark.parametrize("tau", [0.3, 1.0])
@pytest.mark.parametrize(("estimator", "error"), [("soft", 1e-8), ("dirichlet", 1e-7)])
def test_law_7_relaxed_the_gradient_of_alpha_equals_finite_differences(
    estimator: str, error: float, tau: float
) -> None:
    net, batch = tiny.supernet(), tiny.batch()
    alpha_LC = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    noise_LC = gumbel_noise(0, 0, 3, 3).double()

    def loss_at(alpha: Tensor) -> Tensor:
        return _loss(net, ESTIMATORS[estimator](alpha, noise_LC, tau), batch)

    (grad_LC,) = torch.autograd.grad(loss_at(alpha_LC), [alpha_LC])
    difference = 1e-6
    for slot in range(3):
        for k in range(3):
            step_LC = torch.zeros(3, 3, dtype=torch.float64)
            step_LC[slot, k] = difference
            with torch.no_grad():
                slope = (loss_at(alpha_LC + step_LC) - loss_at(alpha_LC - step_LC)).item()
            assert slope / (2 * difference) == pytest.approx(grad_LC[slot, k].item(), abs=error)
    assert float(grad_LC.abs().min()) > 0


@pytest.mark.parametrize("draw", range(3))
@pytest.mark.parametrize("estimator", LEARNING_HARD)
@pytest.mark.parametrize("tau", [0.3, 1.0])
def test_law_7_hard_estimators_have_the_closed_form_of_their_surrogate(
    estimator: str, tau: float, draw: int
) -> None:
    """With a_k = <dL/dout, f_k> of the drawn net, dL/dalpha_j = y_j (a_j - sum_k y_k a_k) / tau.

    Straight-through knows every a_k; single-path only that of the drawn k, the others count as 0.
    Two-path knows those of the first two drawn, whose y are made to sum to 1; the third's is 0.
    a_k is measured here as the slope of the loss in a free weight on candidate k.
    """
    net, batch = tiny.supernet(), tiny.batch()
    alpha_LC = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    noise_LC = gumbel_noise(0, draw, 3, 3).double()
    mix = ESTIMATORS[estimator](alpha_LC, noise_LC, tau)
    (found_LC,) = torch.autograd.grad(_loss(net, mix, batch), [alpha_LC])

    y_LC = torch.softmax((alpha_LC.detach() + noise_LC) / tau, -1)
    drawn_L = y_LC.argmax(-1)
    weight_LC = one_hot(drawn_L, 3).double().requires_grad_()
    (a_LC,) = torch.autograd.grad(_loss(net, all_terms(weight_LC), batch), [weight_LC])
    if estimator == "single_path":
        a_LC = a_LC * one_hot(drawn_L, 3)
    if estimator == "two_path":
        y_LC = y_LC * (1 - one_hot(y_LC.argmin(-1), 3))
        y_LC = y_LC / y_LC.sum(-1, keepdim=True)
    expected_LC = y_LC * (a_LC - (y_LC * a_LC).sum(-1, keepdim=True)) / tau
    assert float((found_LC - expected_LC).abs().max()) < 1e-10
    assert float(found_LC.abs().max()) > 1e-6


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS.keys() - {"spos"}))
def test_law_7_a_gradient_reaches_every_alpha_over_the_draws(estimator: str) -> None:
    net, batch = tiny.supernet(), tiny.batch()
    total_LC = torch.zeros(3, 3, dtype=torch.float64)
    for draw in range(20):
        alpha_LC = torch.zeros(3, 3, dtype=torch.float64, requires_grad=True)
        mix = ESTIMATORS[estimator](alpha_LC, gumbel_noise(0, draw, 3, 3).double(), 1.0)
        loss = _loss(net, mix, batch)
        (grad_LC,) = torch.autograd.grad(loss, [alpha_LC], materialize_grads=True)
        total_LC += grad_LC.abs()
    assert float(total_LC.min()) > 0


def test_the_laws_have_named_tests() -> None:
    text = "".join(path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    missing = [law for law in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11) if f"def test_law_{law}_" not in text]
    assert missing == []
