"""Tiny models and texts for tests."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from model import Candidate, LanguageModel, ModelConfig
from training.config import OptimiserConfig
from training.optim import build_optimiser, rate_of
from training.state import TrainState
from training.step import Forward, WeightStep

VOCABULARY = 23
STEPS = 50
MIX = [[(0, None)], [(1, None)], [(2, None)]]


def candidates(*names: Any, **options: Any) -> tuple[Candidate, ...]:
    """Completed candidates of a tiny model: d_model 8, 2 heads, memory 5."""
    config = model_config(candidates=list(names), **options)
    return config.completed_candidates()


def model_config(**options: Any) -> ModelConfig:
    """A tiny model section."""
    sizes: dict[str, Any] = {
        "n_blocks": 3,
        "d_model": 8,
        "n_heads": 2,
        "d_ffn": 16,
        "memory": 5,
        "dropout": 0.0,
        "softmax": {"cutoffs": [6, 12], "factor": 2},
    }
    return ModelConfig.model_validate({**sizes, **options})


def language_model(
    slots: Sequence[Sequence[Candidate]],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    tie_blocks: int | None = None,
) -> LanguageModel:
    """A tiny model with weights large enough that every part matters."""
    torch.manual_seed(seed)
    config = model_config()
    model = LanguageModel(
        slots,
        d_model=config.d_model,
        vocabulary_size=VOCABULARY,
        softmax=config.softmax,
        tie_blocks=tie_blocks,
    ).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def supernet(*names: Any, slots: int = 3, seed: int = 0, **options: Any) -> LanguageModel:
    """A tiny SuperNet of these candidates."""
    chosen = candidates(*(names or ("attention", "dense", "identity")), **options)
    return language_model([chosen] * slots, seed=seed)


def batch(rows: int = 2, segment: int = 4, *, seed: int = 0, first: bool = False) -> Any:
    """Random inputs and targets."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (2, rows, segment), generator=generator)
    return SimpleNamespace(input_BT=ids[0], target_BT=ids[1], first=first)


def state_of(model: LanguageModel, rows: int = 2, **parts: Any) -> TrainState:
    """A training state with plain SGD."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    return TrainState(
        model=model,
        optimisers={"weights": optimiser, **parts.pop("optimisers", {})},
        streams={"weights": model.initial_state(rows), **parts.pop("streams", {})},
        **parts,
    )


def trained(steps: int, *, seed: int = 0) -> TrainState:
    """A state after some steps of AdamW with single-path draws, so that moments differ."""
    model = supernet(seed=seed)
    config = OptimiserConfig(warmup_steps=0)
    state = state_of(model, parameters={"alpha": torch.nn.Parameter(torch.zeros(3, 3))})
    state.optimisers["weights"] = build_optimiser(model, config)
    step = WeightStep(Forward(torch.device("cpu"), "float32"), config, rate_of(config, STEPS))
    for index in range(steps):
        step(state, batch(seed=index), lambda: MIX)
        state.step += 1
    return state
