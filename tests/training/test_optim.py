"""Optimisers, LAMB against the paper, learning rates at the steps that matter, stages."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tests import tiny
from training.config import OptimiserConfig, RetrainConfig
from training.optim import (
    Lamb,
    build_optimiser,
    learning_rate,
    set_learning_rate,
    stages_of,
    warmup_steps,
)


def reference(
    weight: np.ndarray, gradients: list[np.ndarray], lr: float, decay: float
) -> np.ndarray:
    """Algorithm 2 with phi(z) = z, betas 0.8 and 0.9, eps 1e-3."""
    m, v = np.zeros_like(weight), np.zeros_like(weight)
    for t, gradient in enumerate(gradients, start=1):
        m = 0.8 * m + 0.2 * gradient
        v = 0.9 * v + 0.1 * gradient**2
        r = (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.9**t)) + 1e-3) + decay * weight
        own, its = np.linalg.norm(weight), np.linalg.norm(r)
        weight = weight - lr * (own / its if own > 0 and its > 0 else 1.0) * r
    return weight


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("zero", [False, True])
def test_lamb_equals_the_algorithm(decay: float, zero: bool) -> None:
    generator = np.random.default_rng(0)
    start = np.zeros((3, 4)) if zero else generator.normal(size=(3, 4))
    gradients = [generator.normal(size=(3, 4)) for _ in range(5)]
    weight = torch.nn.Parameter(torch.tensor(start))
    groups = [{"params": [weight], "weight_decay": decay}]
    optimiser = Lamb(groups, lr=0.1, betas=(0.8, 0.9), eps=1e-3)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient)
        optimiser.step()
    expected = reference(start, gradients, 0.1, decay)
    assert np.allclose(weight.detach().numpy(), expected, atol=1e-6)


def test_lamb_moves_a_single_number_by_its_rate_whatever_its_size() -> None:
    factor = torch.nn.Parameter(torch.zeros(()))
    optimiser = Lamb([{"params": [factor]}], lr=0.1, betas=(0.8, 0.9), eps=1e-9)
    for step in range(1, 4):
        factor.grad = torch.tensor(-2.0)
        optimiser.step()
        assert factor.item() == pytest.approx(0.1 * step)


def test_a_block_may_ask_for_a_multiple_of_the_learning_rate() -> None:
    (memory,) = tiny.candidates({"kind": "product_key_memory", "n_keys": 4, "k": 2})
    model = tiny.language_model([[memory]])
    optimiser = build_optimiser(model, OptimiserConfig(kind="adamw", lr=1.0))
    set_learning_rate(optimiser, 0.25)
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    values = {id(p) for name, p in model.named_parameters() if name.endswith("value_ND")}
    assert len(rates) == len([*model.parameters()])
    assert {rates[each] for each in values} == {2.5}
    assert {rate for each, rate in rates.items() if each not in values} == {0.25}


@pytest.mark.parametrize(
    ("settings", "steps", "rates"),
    [
        ({"schedule": "linear", "warmup_steps": 3}, 8, [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0]),
        ({"schedule": "linear", "warmup_steps": 3}, 4, [0.25, 0.5, 0.75, 1.0]),
        ({"schedule": "linear", "min_lr_ratio": 0.2}, 5, [1.0, 0.8, 0.6, 0.4, 0.2]),
        ({"schedule": "cosine", "min_lr_ratio": 0.2}, 3, [1.0, 0.6, 0.2]),
        ({"schedule": "cosine"}, 5, [1.0, 0.5 * (1 + 2**-0.5), 0.5, 0.5 * (1 - 2**-0.5), 0.0]),
        ({"schedule": "constant"}, 10, [1.0] * 10),
    ],
)
def test_rates_rise_evenly_to_the_peak_and_fall_by_the_schedule(
    settings: dict[str, Any], steps: int, rates: list[float]
) -> None:
    config = OptimiserConfig.model_validate({"lr": 2.0, "warmup_steps": 0, **settings})
    found = [learning_rate(config, step, steps) for step in range(steps)]
    assert found == pytest.approx([2.0 * rate for rate in rates], abs=1e-12)


def test_warmup_left_out_is_a_tenth_of_the_steps_and_at_most_100() -> None:
    config = OptimiserConfig()
    assert [warmup_steps(config, steps) for steps in (5, 60, 5000)] == [0, 6, 100]
    assert warmup_steps(OptimiserConfig(warmup_steps=7), 5000) == 7


def config(**settings: Any) -> RetrainConfig:
    return RetrainConfig.model_validate({"steps": 8, "optimiser": {"lr": 1.0}, **settings})


def test_epochs_become_steps_of_this_text() -> None:
    found = [
        stages_of(config(steps=None, epochs=epochs), 40).steps for epochs in (1, 2.5, 0.01, 20)
    ]
    assert found == [40, 100, 1, 800]
    assert stages_of(config(steps=None, epochs=0.29), 100).steps == 29
    assert stages_of(config(steps=7), 40).steps == 7


def test_a_length_is_given_once() -> None:
    both = {"lr": 0.1, "steps": 3, "epochs": 1}
    for given in ({"epochs": 2}, {"steps": None}, {"fine_tune": {"lr": 0.1}}, {"fine_tune": both}):
        with pytest.raises(ValidationError, match="give either steps or epochs"):
            config(**given)


def test_fine_tuning_goes_on_at_its_own_lower_rate() -> None:
    plain = config(optimiser={"lr": 1.0, "warmup_steps": 3})
    fine_tune = {"lr": 0.25, "steps": 5, "schedule": "linear"}
    stages = stages_of(config(optimiser={"lr": 1.0, "warmup_steps": 3}, fine_tune=fine_tune), 40)
    assert (stages.first, stages.fine_tune, stages.steps) == (8, 5, 13)
    assert [stages.rate(step) for step in range(8)] == [
        learning_rate(plain.optimiser, step, 8) for step in range(8)
    ]
    assert [stages.rate(step) for step in range(8, 13)] == [0.25, 0.1875, 0.125, 0.0625, 0.0]
    constant = stages_of(config(fine_tune={"lr": 0.25, "epochs": 0.1}), 40)
    assert [constant.rate(step) for step in range(8, 12)] == [0.25] * 4
    assert stages_of(config(fine_tune={"lr": 0.25, "steps": 1}), 40).rate(8) == 0.25


def test_fine_tuning_must_be_at_a_lower_rate() -> None:
    with pytest.raises(ValidationError, match=r"fine_tune\.lr: 1\.0 must be below optimiser\.lr 1"):
        config(fine_tune={"lr": 1.0, "steps": 2})


def test_a_warmup_longer_than_the_epochs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optimiser\.warmup_steps: 40 must be below steps 40"):
        stages_of(config(steps=None, epochs=1, optimiser={"lr": 1.0, "warmup_steps": 40}), 40)
