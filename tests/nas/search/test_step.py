"""The search step: which data alpha sees, when it moves, which draw stands."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from model import LanguageModel
from nas.search.config import SearchConfig
from nas.search.estimators import ESTIMATORS
from nas.search.plan import SearchPlan
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from tests import tiny
from training.config import OptimiserConfig
from training.optim import build_optimiser, rate_of
from training.state import TrainState
from training.step import Forward, WeightStep

FORWARD = Forward(torch.device("cpu"), "float32")
OPTIMISER = {"kind": "sgd", "lr": 0.05, "warmup_steps": 0, "clip_norm": None}


class Stream:
    """Batches by index that remember which were asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.asked: list[int] = []

    def batch(self, index: int) -> Any:
        self.asked.append(index)
        return tiny.batch(seed=1000 * self.seed + index, first=index == 0)


def make(
    steps: int = 12,
    *,
    estimator: str = "soft",
    alpha_estimator: str | None = None,
    resample_every: Any = "auto",
    optimiser: Any = OPTIMISER,
    model: LanguageModel | None = None,
    places: int = 3,
    rows: int = 2,
    forward: Forward = FORWARD,
    **alpha: Any,
) -> tuple[SearchStep, TrainState]:
    config = SearchConfig.model_validate(
        {
            "steps": steps,
            "estimator": estimator,
            "resample_every": resample_every,
            "optimiser": optimiser,
            "alpha": {"warmup_fraction": 0.25, "lr": 0.1, "estimator": alpha_estimator, **alpha},
        }
    )
    plan = SearchPlan(config, steps, memory=5, segment=4)
    model = model or tiny.supernet()
    alpha_LC = build_alpha(places, len(model.slots[0].labels))
    state = tiny.state_of(
        model,
        rows,
        optimisers={
            "weights": build_optimiser(model, config.optimiser),
            "alpha": build_alpha_optimiser(alpha_LC, plan),
        },
        parameters={"alpha": alpha_LC},
        streams={"alpha": model.initial_state(rows)},
    )
    weight_step = WeightStep(forward, config.optimiser, rate_of(config.optimiser, steps))
    extra = Stream(2) if config.alpha.data == "split" else None
    return SearchStep(plan, weight_step, 0, extra), state


def run(step: SearchStep, state: TrainState, steps: int) -> list[torch.Tensor]:
    stream, alphas = Stream(1), []
    for index in range(steps):
        step(state, stream.batch(index))
        state.step += 1
        alphas.append(state.parameters["alpha"].detach().clone())
    return alphas


def weights(model: LanguageModel) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("data", ["shared", "split", "next_batch"])
@pytest.mark.parametrize("estimator", ["soft", "straight_through", "single_path"])
def test_alpha_moves_from_its_first_step_on_by_micro_batches_as_by_the_whole(
    data: str, estimator: str
) -> None:
    """Until then it is bit-identical; micro-batches share the draw."""
    found = []
    for parts in (1, 2):
        step, state = make(data=data, estimator=estimator, every=1)
        forward = replace(step.weight_step.forward, micro_batches=parts)
        step = replace(step, weight_step=replace(step.weight_step, forward=forward))
        state.parameters["alpha"].data = state.parameters["alpha"].data.double()
        alphas = run(step, state, 12)
        assert step.plan.alpha_start == 3
        assert all(torch.equal(alpha, torch.zeros(3, 3).double()) for alpha in alphas[:3])
        assert not torch.equal(alphas[5], alphas[2])
        found.append((alphas[-1], *weights(state.model)))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
    assert float(found[0][0].abs().max()) > 0.05


def test_alpha_moves_every_so_many_steps() -> None:
    step, state = make(data="next_batch", every=3)
    alphas = [torch.zeros(3, 3), *run(step, state, 12)]
    moved = [not torch.equal(a, b) for a, b in pairwise(alphas)]
    assert [index for index, flag in enumerate(moved) if flag] == [3, 6, 9]


def test_the_last_alpha_step_has_learning_rate_0() -> None:
    step, state = make(data="next_batch")
    alphas = run(step, state, 12)
    assert torch.equal(alphas[-1], alphas[-2])
    assert step.plan.alpha_lr(11) == 0.0
    assert step.plan.alpha_lr(3) == 0.1


def with_dropout(model: LanguageModel) -> None:
    model.dropout = replace(model.dropout, residual=0.1, embedding=0.1)
    for slot in model.slots:
        slot.dropout = 0.1
        slot.blocks["attention"].dropout = slot.blocks["dense"].dropout = 0.1


@pytest.mark.parametrize("data", ["split", "next_batch"])
@pytest.mark.parametrize("forward", [{}, {"micro_batches": 2}, {"recompute": True}], ids=str)
def test_the_weights_steps_do_not_depend_on_alphas(data: str, forward: dict[str, Any]) -> None:
    """Drawn uniformly, the weights hear nothing of alpha but through random numbers."""
    found = []
    for warmup_fraction in (0.25, 0.75):
        step, state = make(estimator="auto", data=data, warmup_fraction=warmup_fraction, every=1)
        with_dropout(state.model)
        torch.manual_seed(7)
        forward_now = replace(step.weight_step.forward, **forward)
        step = replace(step, weight_step=replace(step.weight_step, forward=forward_now))
        alphas = run(step, state, 12)
        assert torch.equal(alphas[8], torch.zeros(3, 3)) == (warmup_fraction == 0.75)
        found.append([*weights(state.model), torch.get_rng_state()])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


def alpha_gradient(state: TrainState, step: SearchStep) -> torch.Tensor:
    step._alpha_step(state, tiny.batch())
    gradient = state.parameters["alpha"].grad
    return gradient.clone()


def test_alphas_dropout_is_another_in_each_step_and_seed_and_the_same_again() -> None:
    def gradient(at: int = 5, seed: int = 0) -> torch.Tensor:
        step, state = make(data="next_batch")
        with_dropout(state.model)
        state.step = at
        # One noise for all, and tau changes the gradient's length alone: what differs is dropout.
        noise = torch.zeros(3, 3)
        gradient_LC = alpha_gradient(state, replace(step, seed=seed, noise=lambda *_: noise))
        return gradient_LC / gradient_LC.norm()

    one = gradient()
    torch.manual_seed(99)  # nothing that was drawn before matters
    assert torch.equal(one, gradient())
    for other in (gradient(at=6), gradient(seed=1)):
        assert not torch.allclose(one, other, atol=1e-3)


def test_next_batch_alpha_sees_the_batch_before_the_weights_train_on_it() -> None:
    """The alpha step's gradient is that of the weights before this step on this step's batch."""
    step, state = make(data="next_batch")
    run(step, state, 4)
    batch = tiny.batch(seed=77)
    net, alpha_LC = state.model, state.parameters["alpha"]
    h_BTD, _, _ = net(batch.input_BT, state.streams["weights"], step.mix(state))
    loss = net.nll(h_BTD, batch.target_BT).mean()
    (expected_LC,) = torch.autograd.grad(loss, [alpha_LC])
    before = state.streams["weights"].seen_B.clone()
    step(state, batch)
    assert torch.allclose(alpha_LC.grad, expected_LC, atol=1e-12)
    assert torch.equal(state.streams["weights"].seen_B, before + 4)


def test_split_alpha_reads_its_own_stream_in_order_with_its_own_memory() -> None:
    step, state = make(data="split", every=2)
    run(step, state, 12)
    assert isinstance(step.alpha_batches, Stream)
    assert step.alpha_batches.asked == [0, 1, 2, 3, 4]
    assert state.streams["alpha"].seen_B.tolist() == [20, 20]
    assert state.streams["weights"].seen_B.tolist() == [48, 48]


LOSING = (
    {"kind": "mixture_of_experts", "balance_loss": 1.0},
    {"kind": "adaptive_span", "span": 6, "span_loss": 0.1},
)


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS.keys() - {"spos"}))
@pytest.mark.parametrize("data", ["shared", "split", "next_batch"])
def test_a_blocks_auxiliary_loss_is_no_part_of_alphas_gradient(data: str, estimator: str) -> None:
    net = tiny.supernet("dense", *LOSING)
    step, state = make(data=data, estimator=estimator, warmup_fraction=0.0, model=net)
    batch, alpha_LC = Stream(2).batch(0), state.parameters["alpha"]
    h_BTD, _, aux = net(batch.input_BT, net.initial_state(2), step.mix(state))
    nats, trained = net.nll(h_BTD, batch.target_BT).mean(), list(net.parameters())
    (wanted_LC,) = torch.autograd.grad(nats, [alpha_LC], retain_graph=True)
    weights_wanted = torch.autograd.grad(nats + aux, trained, materialize_grads=True)
    if data == "shared":
        step(state, batch)
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        torch.testing.assert_close(found, list(weights_wanted), rtol=0, atol=1e-12)
        # One pass for both: earlier slots make what the routers of later ones read.
        slots = slice(2, 3)
    else:
        step._alpha_step(state, batch)
        slots = slice(0, 3)
    torch.testing.assert_close(alpha_LC.grad[slots], wanted_LC[slots], rtol=0, atol=1e-12)


@pytest.mark.parametrize("data", ["shared", "next_batch"])
def test_a_draw_of_identity_everywhere_is_a_gradient_of_0(data: str) -> None:
    step, state = make(data=data, estimator="single_path", warmup_fraction=0.0)
    noise_LC = torch.tensor([[0.0, 0.0, 50.0]] * 3)
    replace(step, noise=lambda *_: noise_LC)(state, tiny.batch(first=True))
    assert torch.equal(state.parameters["alpha"], torch.zeros(3, 3))
    assert torch.equal(state.parameters["alpha"].grad, torch.zeros(3, 3))


def test_hard_draws_are_held_for_as_long_as_the_memory_reaches_back_plus_one() -> None:
    for memory, segment, expected in ((5, 4, 4), (64, 8, 9), (0, 4, 4), (33, 8, 6)):
        config = SearchConfig(
            steps=9, estimator="single_path", optimiser=OptimiserConfig(warmup_steps=0)
        )
        assert SearchPlan(config, 9, memory, segment).resample_every == expected
        soft = config.model_copy(update={"estimator": "soft"})
        assert SearchPlan(soft, 9, memory, segment).resample_every == 1
        three = config.model_copy(update={"resample_every": 3})
        assert SearchPlan(three, 9, memory, segment).resample_every == 3


def test_noise_is_drawn_once_a_step_and_held() -> None:
    step, state = make(steps=12, estimator="straight_through", resample_every=4)
    asked: list[int] = []

    def noise(seed: int, draw: int, slots: int, count: int) -> torch.Tensor:
        asked.append(draw)
        return torch.zeros(slots, count)

    run(replace(step, noise=noise), state, 12)
    assert sorted(set(asked)) == [0, 1, 2]
    frozen = asked[:3]
    assert frozen == [0, 0, 0]
    assert asked[3:5] == [0, 0]


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("every", [1, 4])
def test_the_auto_learning_rate_lets_alpha_travel_ten_but_never_faster_than_it_may(
    schedule: str, every: int
) -> None:
    for steps in (40, 240, 800, 4000, 20_000):
        alpha = {"schedule": schedule, "every": every}
        config = SearchConfig.model_validate({"steps": steps, "alpha": alpha})
        plan = SearchPlan(config, steps, 0, 1)
        rates = [plan.alpha_lr(step) for step in range(steps) if plan.alpha_due(step)]
        assert max(rates) == plan.alpha_peak_lr <= 0.05
        if max(rates) < 0.05:
            assert sum(rates) == pytest.approx(10.0)
        else:
            assert sum(rates) <= 10.0 + 1e-9
    assert sum(rates) == pytest.approx(10.0)


@pytest.mark.parametrize("data", ["split", "next_batch"])
def test_alphas_pass_asks_for_no_gradient_of_the_weights_and_keeps_none(data: str) -> None:
    step, state = make(data=data)
    run(step, state, 4)
    wanted: list[set[bool]] = []
    there: list[bool] = []

    def look(model: LanguageModel, _: Any) -> None:
        parameters = list(model.parameters())
        wanted.append({parameter.requires_grad for parameter in parameters})
        there.append(any(parameter.grad is not None for parameter in parameters))

    state.model.register_forward_pre_hook(look)
    step(state, tiny.batch())
    assert wanted == [{False}, {True}]
    assert there == [False, False]
