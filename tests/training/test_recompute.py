"""Slots computed again in the backward pass: the same bits, fewer of them kept."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model import BLOCKS, LanguageModel
from model.ops import Dropout
from nas.search.estimators import ESTIMATORS, gumbel_noise
from nas.search.step import SearchStep
from tests import tiny
from tests.nas.search.test_step import FORWARD, make
from training.state import TrainState
from training.step import Forward

KINDS = ("attention", "dense", "identity")
ALL_DROPOUT = Dropout(residual=0.2, embedding=0.1, attention=0.3, dense=0.4)


def supernet(
    dtype: torch.dtype = torch.float64, tie_blocks: int | None = None, kinds: Sequence[Any] = KINDS
) -> LanguageModel:
    """These kinds in four slots, with dropout everywhere."""
    torch.manual_seed(0)
    config = tiny.model_config()
    return LanguageModel(
        [tiny.candidates(*kinds)] * 4,
        d_model=8,
        vocabulary_size=tiny.VOCABULARY,
        softmax=config.softmax,
        dropout=ALL_DROPOUT,
        tie_blocks=tie_blocks,
    ).to(dtype)


def search_step(
    model: LanguageModel, forward: Forward, estimator: str, **alpha: Any
) -> tuple[SearchStep, TrainState]:
    optimiser = {"lr": 0.01, "warmup_steps": 0}
    return make(
        8, estimator=estimator, resample_every=2, optimiser=optimiser, model=model,
        places=len(model.tied.own), rows=3, forward=forward, **alpha,
    )  # fmt: skip


def all_of_a_run(forward: Forward, estimator: str, **options: Any) -> list[Tensor]:
    """Metrics, weights, buffers, gradients, moments, alpha, memories, random numbers, in a row."""
    made = {name: options.pop(name) for name in ("tie_blocks", "dtype", "kinds") if name in options}
    steps = options.pop("steps", 6)
    step, state = search_step(supernet(**made), forward, estimator, **options)
    torch.manual_seed(7)
    found: list[Tensor] = []
    for state.step in range(steps):
        metrics = step(state, tiny.batch(3, seed=state.step, first=state.step == 0))
        found += [torch.as_tensor(value).clone() for value in metrics.values()]
    parameters = [*state.model.parameters(), state.parameters["alpha"]]
    found += [p.detach() for p in parameters] + [p.grad for p in parameters if p.grad is not None]
    found += [t for p in state.optimisers["weights"].state.values() for t in p.values()]
    found += state.model.buffers()
    return [*found, *state.streams["weights"].tensors().values(), torch.get_rng_state()]


CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {"data": data}) for name in ESTIMATORS for data in ("next_batch", "shared")),
    ("straight_through", {"tie_blocks": 2}),
    ("straight_through", {"dtype": torch.float32}),
    ("soft", {"tie_blocks": 2, "dtype": torch.float32}),
    # Keys of clusters and choices of experts are counted in the first pass alone.
    *(("soft", {"kinds": (kind,), "tie_blocks": 2, "steps": 1}) for kind in BLOCKS),
]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("estimator", "options"), CASES, ids=str)
def test_a_search_is_the_same_bit_for_bit(
    estimator: str, options: dict[str, Any], parts: int
) -> None:
    """With weights in float32 under autocast."""
    precision = "bfloat16" if "dtype" in options else "float32"
    forward = replace(FORWARD, precision=precision, micro_batches=parts)
    kept = all_of_a_run(forward, estimator, **options)
    again = all_of_a_run(replace(forward, recompute=True), estimator, **options)
    assert len(kept) == len(again)
    assert all(torch.equal(one, two) for one, two in zip(kept, again, strict=True))


@pytest.mark.parametrize("recompute", [False, True])
def test_every_slot_is_computed_twice_where_it_is_not_kept(recompute: bool) -> None:
    model, batch, computed = supernet(), tiny.batch(3, 16), list[int]()
    mix = ESTIMATORS["soft"](torch.zeros(4, len(KINDS)), gumbel_noise(0, 0, 4, len(KINDS)), 1.0)
    for number, slot in enumerate(model.slots):
        slot.register_forward_pre_hook(lambda *_, number=number: computed.append(number))
    h_BTD, _, _ = model(batch.input_BT, model.initial_state(3), mix, recompute=recompute)
    model.nll(h_BTD, batch.target_BT).mean().backward()
    assert sorted(computed) == sorted([*range(4)] * (2 if recompute else 1))
