"""Weights and alpha may step by different estimators of the same draw."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from nas.search.config import SearchConfig
from nas.search.estimators import ESTIMATORS, gumbel_noise
from nas.search.step import SearchStep
from tests import tiny
from tests.nas.search import test_step
from training.state import TrainState

STEPS = 12
ALPHA_LC = torch.tensor([[0.4, -0.3, 0.1], [0.0, 0.2, -0.5], [-0.1, 0.3, 0.2]]).double()


def make(
    weights: str, alpha: str | None, *, kind: str = "adamw", **options: Any
) -> tuple[SearchStep, TrainState]:
    """A step from its first one on, whose alpha is not 0."""
    step, state = test_step.make(
        STEPS,
        estimator=weights,
        alpha_estimator=alpha,
        optimiser={"kind": kind, "lr": 0.05, "warmup_steps": 0, "weight_decay": 0.1},
        **{"warmup_fraction": 0.0, **options},
    )
    state.parameters["alpha"].data = ALPHA_LC.clone()
    return step, state


def drawing(step: SearchStep, drawn_L: tuple[int, ...]) -> SearchStep:
    """The step under noise that draws these candidates, whatever alpha is by now."""
    noise_LC = gumbel_noise(0, 3, 3, 3).double()
    noise_LC += 20.0 * one_hot(torch.tensor(drawn_L), 3)
    return replace(step, noise=lambda *_: noise_LC)


def weights_of(state: TrainState) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in state.model.named_parameters()}


def test_both_steps_draw_the_same_candidates() -> None:
    step, state = make("single_path", "straight_through", data="next_batch")
    seen = set()
    for state.step in range(STEPS):
        drawn = [terms[0][0] for terms in step.mix(state)]
        weights = [
            [weight.item() for _, weight in terms if weight is not None]
            for terms in step.alpha_mix(state)
        ]
        assert weights == one_hot(torch.tensor(drawn), 3).tolist()
        seen.add(tuple(drawn))
    assert len(seen) > 1


def undrawn(names: Mapping[str, Any], drawn_L: tuple[int, ...]) -> set[str]:
    labels = ("attention", "dense", "identity")
    kept = tuple(
        f".{slot}.{part}.{labels[k]}."
        for slot, k in enumerate(drawn_L)
        for part in ("blocks", "norms")
    )
    return {n for n in names if n.startswith("slots.") and not any(each in n for each in kept)}


@pytest.mark.parametrize("kind", ["adamw", "adam", "lamb", "adagrad", "sgd"])
@pytest.mark.parametrize(
    ("weights", "alpha"),
    [
        ("single_path", "straight_through"), ("single_path", "soft"),
        ("two_path", "two_path"), ("straight_through", "straight_through"),
    ],
)  # fmt: skip
def test_candidates_that_are_not_drawn_are_left_alone(weights: str, alpha: str, kind: str) -> None:
    """No gradient, the same bits, the same optimiser state, though alpha's step computed them."""
    step, state = make(weights, alpha, kind=kind, data="next_batch")
    optimiser = state.optimisers["weights"]
    drawing(step, (1, 0, 1))(state, tiny.batch(first=True))
    state.step += 1
    parameters = dict(state.model.named_parameters())
    before = weights_of(state)
    moments = {
        name: {
            key: torch.as_tensor(value).clone()
            for key, value in optimiser.state[p].items()
            if value is not None
        }
        for name, p in parameters.items()
        if p in optimiser.state
    }
    drawing(step, (0, 1, 2))(state, tiny.batch(seed=1))
    left = undrawn(parameters, (0, 1, 2))
    assert any("slots.0.blocks.dense" in name for name in left)
    for name in left:
        assert parameters[name].grad is None, name
        assert torch.equal(before[name], parameters[name]), name
        known = optimiser.state.get(parameters[name], {})
        kept = {key: value for key, value in known.items() if value is not None}
        assert kept.keys() == moments.get(name, {}).keys(), name
        assert all(torch.equal(torch.as_tensor(kept[key]), moments[name][key]) for key in kept)
    moved = [name for name in parameters if not torch.equal(before[name], parameters[name])]
    assert any("slots.0.blocks.attention" in name for name in moved)
    assert any("slots.1.blocks.dense" in name for name in moved)


@pytest.mark.parametrize(
    ("settings", "weights", "alpha"),
    [
        *(({"estimator": name}, name, name) for name in ESTIMATORS),
        ({}, "spos", "soft"),
        ({"alpha": {"estimator": "two_path"}}, "spos", "two_path"),
        ({"alpha": {"data": "split"}}, "spos", "soft"),
        ({"alpha": {"data": "shared"}}, "soft", "soft"),
        ({"alpha": {"data": "shared", "estimator": "two_path"}}, "two_path", "two_path"),
    ],
)
def test_what_auto_and_null_are(settings: dict[str, Any], weights: str, alpha: str) -> None:
    config = SearchConfig.model_validate({"steps": 8, **settings})
    assert config.weights_estimator == weights
    assert (config.alpha_estimator, config.alpha_learns) == (alpha, alpha != "spos")


@pytest.mark.parametrize(
    ("weights", "alpha", "data", "hold", "every_third"),
    [
        ("single_path", "soft", "next_batch", 4, 4),
        ("soft", "single_path", "next_batch", 1, 1),
        ("soft", "straight_through", "split", 4, 12),
        ("soft", "soft", "split", 1, 1),
        ("straight_through", "soft", "split", 4, 4),
    ],
)
def test_the_passes_that_fill_a_memory_decide_how_long_a_draw_is_held(
    weights: str, alpha: str, data: str, hold: int, every_third: int
) -> None:
    for every, steps in ((1, hold), (3, every_third)):
        step, _ = make(weights, alpha, data=data, every=every)
        assert step.plan.resample_every == steps


START_LC = torch.tensor([[0.3, -0.1, 0.7]] * 3)


def test_alpha_may_learn_by_another_estimator_while_the_weights_see_uniform_draws() -> None:
    step, state = test_step.make(estimator="spos", data="next_batch")
    learning, _ = test_step.make(estimator="spos", alpha_estimator="two_path", data="next_batch")
    drawn = [[k for ((k, _),) in each.mix(state)] for each in (step, learning)]
    assert drawn[0] == drawn[1]
    state.parameters["alpha"].data = START_LC.clone()
    state.step = learning.plan.alpha_start
    learning(state, tiny.batch(first=True))
    assert not torch.equal(state.parameters["alpha"], START_LC)


def test_under_spos_all_weights_train_and_alpha_stays_bit_identical() -> None:
    step, state = test_step.make(24, estimator="spos", resample_every=1)
    state.parameters["alpha"].data, before = START_LC.clone(), weights_of(state)
    test_step.run(step, state, 24)
    assert torch.equal(state.parameters["alpha"], START_LC)
    assert not any(torch.equal(before[name], one) for name, one in weights_of(state).items())
