"""LAMB against the paper's algorithm written out in numpy."""

import numpy as np
import pytest
import torch

from training.optim import Lamb


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


def test_a_tensor_without_a_gradient_stays() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimiser = Lamb([{"params": [weight]}], lr=0.1, betas=(0.9, 0.99), eps=1e-6)
    optimiser.step()
    assert torch.equal(weight, torch.ones(2))
    assert not optimiser.state
