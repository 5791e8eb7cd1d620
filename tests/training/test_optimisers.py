"""Optimisers of the weights: what keys that are left out come to."""

import pytest
from torch import nn

from training.config import OptimiserConfig
from training.optim import build_optimiser, learning_rate


@pytest.mark.parametrize("kind", ["adamw", "adam", "lamb", "adagrad", "sgd"])
@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_what_an_optimiser_says_of_keys_left_out_is_what_it_does(kind: str, schedule: str) -> None:
    config = OptimiserConfig(kind=kind, schedule=schedule)
    given = OptimiserConfig(kind=kind, schedule=schedule, **config.left_out())
    assert given.left_out() == {}
    model = nn.Linear(3, 3)
    one, two = (build_optimiser(model, each).defaults for each in (config, given))
    assert one == two
    for step in range(20):
        assert learning_rate(config, step, 20) == learning_rate(given, step, 20)
