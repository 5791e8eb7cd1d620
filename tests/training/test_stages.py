"""Steps or epochs, and the fine-tuning stage."""

from typing import Any

import pytest
from pydantic import ValidationError

from training.config import RetrainConfig
from training.optim import learning_rate, stages_of


def config(**settings: Any) -> RetrainConfig:
    return RetrainConfig.model_validate({"steps": 8, "optimiser": {"lr": 1.0}, **settings})


def test_epochs_become_steps_of_this_text() -> None:
    found = [
        stages_of(config(steps=None, epochs=epochs), 40).steps for epochs in (1, 2.5, 0.01, 20)
    ]
    assert found == [40, 100, 1, 800]
    assert stages_of(config(steps=None, epochs=0.29), 100).steps == 29
    assert stages_of(config(steps=7), 40).steps == 7


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 2},
        {"steps": None},
        {"fine_tune": {"lr": 0.1}},
        {"fine_tune": {"lr": 0.1, "steps": 3, "epochs": 1}},
    ],
)
def test_a_length_is_given_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="give either steps or epochs"):
        config(**settings)


@pytest.mark.parametrize("epochs", [1e307, 1.1e6, 0.0, -1.0])
def test_epochs_have_bounds(epochs: float) -> None:
    with pytest.raises(ValidationError, match="epochs"):
        config(steps=None, epochs=epochs)


def test_fine_tuning_goes_on_at_its_own_lower_rate() -> None:
    plain = config(optimiser={"lr": 1.0, "warmup_steps": 3})
    stages = stages_of(
        plain.model_copy(
            update={
                "fine_tune": config(
                    fine_tune={"lr": 0.25, "steps": 5, "schedule": "linear"}
                ).fine_tune
            }
        ),
        40,
    )
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
