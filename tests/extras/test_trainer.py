"""transformers' Trainer on an exported folder: it trains, evaluates, resumes and saves."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.extras.huggingface import DOC, Exported, export, load, tokens
from tests.model.tiny import candidate

# One with losses of its own, and all that a state may hold.
BLOCKS = ("attention", "dense", "adaptive_span", "routing", "mixture_of_experts", "gated_delta")
TEXTS = [{"input_ids": row, "labels": row} for row in tokens(24, 21)]
HELD_OUT = TEXTS[:7]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return export(tmp_path_factory.mktemp("made"), *map(candidate, BLOCKS))


@pytest.fixture(autouse=True)
def _own_seeds() -> Iterator[None]:
    """Trainer seeds the generators that all share."""
    before = random.getstate(), np.random.get_state()
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])


def trainer(model: Any, folder: Path, **given: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(folder), max_steps=4, per_device_train_batch_size=4, per_device_eval_batch_size=3,
        eval_strategy="steps", eval_steps=2, save_steps=2, logging_steps=1, learning_rate=0.01,
        report_to=[], use_cpu=True, disable_tqdm=True, **given,
    )  # fmt: skip
    return Trainer(model, arguments, train_dataset=TEXTS, eval_dataset=HELD_OUT)


def nats(model: Any) -> float:
    ids = torch.stack([row["input_ids"] for row in HELD_OUT])
    with torch.no_grad():
        return float(model.eval()(ids, labels=ids).loss)


def equal(one: Any, other: Any) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_it_trains_evaluates_resumes_and_saves(exported: Exported, tmp_path: Path) -> None:
    model = load(exported.folder)
    before = nats(model)
    whole = trainer(model, tmp_path / "whole")
    whole.train()
    seen = [row["eval_loss"] for row in whole.state.log_history if "eval_loss" in row]
    assert len(seen) == 2
    assert before > seen[0] > seen[1]
    assert whole.evaluate()["eval_loss"] == pytest.approx(nats(model), abs=1e-5) == seen[1]
    assert whole.predict(HELD_OUT[:2]).predictions.shape == (2, 21, DOC + 1)
    resumed = trainer(load(exported.folder), tmp_path / "again")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole/checkpoint-2"))
    assert equal(resumed.model, model)
    assert equal(load(tmp_path / "whole/checkpoint-4"), model)
    whole.save_model(str(tmp_path / "saved"))
    assert equal(load(tmp_path / "saved"), model)
