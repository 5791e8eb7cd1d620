"""A step never asks the device for a number: it runs on the meta device, where none are."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from model import LanguageModel
from model.attention_kernels import KERNELS
from nas.search.estimators import ESTIMATORS, on_device
from tests import tiny
from tests.nas.search.test_step import with_dropout
from training.config import OptimiserConfig
from training.evaluation import evaluate
from training.optim import build_optimiser, rate_of
from training.state import TrainState
from training.step import Forward, WeightStep

META = torch.device("meta")
MIX = [[(0, None)], [(1, None)], [(0, None)]]


def nowhere(model: LanguageModel, config: OptimiserConfig) -> TrainState:
    """The state of a run on the meta device."""
    model.to(META).train()
    return TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, config)},
        streams={"weights": model.initial_state(2)},
        loss_sum=torch.zeros((), dtype=torch.float64, device=META),
    )


def config_of(kind: str) -> OptimiserConfig:
    clipping = {"clip_norm": 0.3, "clip_each_norm": 0.2, "clip_value": 0.1}
    return OptimiserConfig.model_validate({"kind": kind, "lr": 0.1, "warmup_steps": 0, **clipping})


# torch's fused Adam is not there for the meta device; Adam is covered by LAMB's own code.
@pytest.mark.parametrize("kind", ["sgd", "lamb"])
@pytest.mark.parametrize(
    "options", [{}, {"micro_batches": 2}, {"recompute": True}], ids=["plain", "parts", "recompute"]
)
def test_a_step_of_the_weights_asks_for_nothing(kind: str, options: dict[str, Any]) -> None:
    config = config_of(kind)
    with_dropout(model := tiny.supernet())
    state = nowhere(model, config)
    step = WeightStep(Forward(META, "float32", **options), config, rate_of(config, 10))
    for seed in range(4):
        metrics = step(state, tiny.batch(seed=seed, first=seed == 2), lambda: MIX)
        assert all(value.is_meta for value in metrics.values() if isinstance(value, torch.Tensor))
        state.step += 1


@pytest.mark.parametrize("path", [*KERNELS])
@pytest.mark.parametrize("seen", [0, 5])
def test_no_path_of_attention_asks_for_anything(path: str, seen: int) -> None:
    model = tiny.supernet().to(META)
    state = replace(model.initial_state(2), least_seen=seen)
    batch = tiny.batch()
    h_BTD, _, _ = model(batch.input_BT, state, MIX, attention=path)
    model.nll(h_BTD, batch.target_BT).sum().backward()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_draw_asks_for_nothing(estimator: str) -> None:
    model, batch = tiny.supernet().to(META), tiny.batch()
    with torch.no_grad():
        mix = ESTIMATORS[estimator](torch.zeros(3, 3), torch.randn(3, 3), 1.0)
    h_BTD, _, _ = model(batch.input_BT, model.initial_state(2), on_device(mix, META))
    model.nll(h_BTD, batch.target_BT).sum().backward()


def test_ids_on_the_device_would_be_asked_for() -> None:
    """The test above can see a wait."""
    model = tiny.supernet().to(META)
    with pytest.raises(RuntimeError, match="meta"):
        model(tiny.batch().input_BT.to(META), model.initial_state(2), MIX)


def test_an_evaluation_asks_for_its_sum_alone() -> None:
    model, scored = tiny.supernet().to(META), tiny.batch(first=True)
    scored.score_BT = torch.tensor([[True] * 4, [False, True, True, False]])

    class Streams(list[Any]):
        scored, words = 12, None

    with pytest.raises(RuntimeError, match="meta") as error:
        evaluate(model, Streams([scored] * 2), byte_length_V=None, device=META, mix=MIX)
    assert "float(nats)" in " ".join(str(entry.statement) for entry in error.traceback)
