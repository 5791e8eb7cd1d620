"""The sides of the speed claims as functions that take one step."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from benchmarks.harness import Side
from benchmarks.reference.ceiling import Ceiling
from benchmarks.reference.textbook import Textbook
from benchmarks.shapes import LABELS, Shape
from data.batching import ContextBatches
from model import Candidate, LanguageModel, SoftmaxConfig
from model.config import ModelConfig
from nas.search.config import SearchConfig
from nas.search.estimators import gumbel_noise
from nas.search.plan import SearchPlan
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from pipeline.devices import set_precision
from training.config import OptimiserConfig
from training.distributed import ALONE
from training.optim import build_optimiser
from training.state import TrainState
from training.step import Forward, WeightStep

STEPS_OF_TEXT = 64
OUR_ALLOCATOR = "textbook, our allocator"
# Positions of ours beside relative ones.
OTHERS = ("rope", "none")
ADAM = OptimiserConfig(kind="adam", lr=1e-4, weight_decay=0.0)


def zipf_batches(shape: Shape) -> ContextBatches:
    """Random ids whose frequencies fall as those of words do; some steps of text, repeated."""
    weight_V = 1.0 / np.arange(1, shape.vocabulary + 1)
    random = np.random.default_rng(0)
    count = shape.batch * shape.segment * STEPS_OF_TEXT + 1
    tokens = random.choice(shape.vocabulary, size=count, p=weight_V / weight_V.sum())
    return ContextBatches(tokens.astype(np.int64), batch=shape.batch, segment=shape.segment)


def model_config(shape: Shape) -> ModelConfig:
    """The model section of a shape."""
    return ModelConfig(
        n_blocks=shape.slots,
        d_model=shape.d_model,
        n_heads=shape.n_heads,
        d_ffn=shape.d_ffn,
        memory=shape.memory,
        dropout=shape.dropout,
        softmax=SoftmaxConfig(cutoffs=shape.cutoffs),
    )


def candidates(shape: Shape) -> dict[str, Candidate]:
    """The default candidates at these sizes, by label."""
    return {candidate.label: candidate for candidate in model_config(shape).completed_candidates()}


def language_model(shape: Shape, slots: Sequence[Sequence[Candidate]]) -> LanguageModel:
    """A model with these candidates in its slots."""
    config = model_config(shape)
    assert isinstance(config.softmax, SoftmaxConfig)
    return LanguageModel(
        slots,
        d_model=shape.d_model,
        vocabulary_size=shape.vocabulary,
        softmax=config.softmax,
        dropout=config.dropouts(),
    )


def our_model(shape: Shape, positions: str = "relative") -> LanguageModel:
    """The derived model with attention and dense slots in turn."""
    found = candidates(shape)
    found["attention"] = found["attention"].model_copy(update={"positions": positions})
    return language_model(
        shape, [(found["dense" if slot % 2 else "attention"],) for slot in range(shape.slots)]
    )


def weight_step(precision: str, device: torch.device, **options: Any) -> WeightStep:
    """The step that search and retrain take."""
    return WeightStep(Forward(device, precision, **options), ADAM, lambda step: ADAM.lr)


def our_step(
    shape: Shape,
    precision: str = "float32",
    device: torch.device | None = None,
    positions: str = "relative",
) -> Callable[[], object]:
    """The retraining's own step."""
    torch.manual_seed(0)
    return model_step(our_model(shape, positions), shape, precision, device)


def model_step(
    model: LanguageModel,
    shape: Shape,
    precision: str = "float32",
    device: torch.device | None = None,
    **options: Any,
) -> Callable[[], object]:
    """A retraining step of a model; options are those of `Forward`."""
    device = device or torch.device("cpu")
    model.to(device)
    step, batches = weight_step(precision, device, **options), zipf_batches(shape)
    mine = replace(shape, batch=options.get("ranks", ALONE).count(shape.batch))
    state = train_state(model, mine, device)

    def take() -> None:
        step(state, batches.batch(state.step))
        state.step += 1

    return take


def supernet_step(
    model: LanguageModel, shape: Shape, estimator: str, held: Sequence[int]
) -> Callable[[], object]:
    """A search step with weights and alpha on the same batch; `held` fixes what is drawn."""
    config = SearchConfig(
        steps=10_000,
        estimator=estimator,
        resample_every=1,
        alpha={"data": "shared", "warmup_fraction": 0.0},
    )
    plan = SearchPlan(config, 10_000, shape.memory, shape.segment)
    count = len(LABELS)

    def noise(seed: int, draw: int, slots: int, candidates: int) -> Tensor:
        if not held:
            return gumbel_noise(seed, draw, slots, candidates)
        return 50.0 * one_hot(torch.tensor(held), candidates).float()

    step = SearchStep(plan, weight_step("float32", torch.device("cpu")), 0, noise=noise)
    state, batches = train_state(model, shape, torch.device("cpu")), zipf_batches(shape)
    alpha_LC = build_alpha(shape.slots, count)
    state.parameters["alpha"] = alpha_LC
    state.optimisers["alpha"] = build_alpha_optimiser(alpha_LC, plan)

    def take() -> None:
        step(state, batches.batch(state.step))
        state.step += 1

    return take


def train_state(model: LanguageModel, shape: Shape, device: torch.device) -> TrainState:
    """A run of these weights that has not begun."""
    return TrainState(
        model=model.train(),
        optimisers={"weights": build_optimiser(model, ADAM)},
        streams={"weights": model.initial_state(shape.batch)},
        loss_sum=torch.zeros((), dtype=torch.float64, device=device),
    )


def textbook_step(shape: Shape) -> Callable[[], object]:
    """The textbook Transformer-XL's step."""
    torch.manual_seed(0)
    model = Textbook(**_sizes(shape), memory=shape.memory, cutoffs=shape.cutoffs)
    return _on_text(model.step, shape)


def ceiling_step(shape: Shape) -> Callable[[], object]:
    """The practical ceiling's step."""
    torch.manual_seed(0)
    softmax = SoftmaxConfig(cutoffs=shape.cutoffs)
    model = Ceiling(**_sizes(shape), softmax=softmax, optimiser=ADAM)
    return _on_text(model.step, shape)


def _sizes(shape: Shape) -> dict[str, Any]:
    """What both models of reference are told."""
    names = ("slots", "d_model", "n_heads", "d_ffn", "dropout", "vocabulary")
    return {name: getattr(shape, name) for name in names}


def _on_text(take: Callable[[Tensor, Tensor], Tensor], shape: Shape) -> Callable[[], object]:
    batches = zipf_batches(shape)
    done = 0

    def step() -> None:
        nonlocal done
        batch = batches.batch(done)
        take(batch.input_BT, batch.target_BT)
        done += 1

    return step


def step_sides(shape: Shape) -> dict[str, Side]:
    """Ours, the textbook's (allocator as it comes, and as we set it) and the ceiling's on a CPU."""
    others = {f"ours, {name}": Side(our_step, (shape, "float32", None, name)) for name in OTHERS}
    return {
        "ours": Side(our_step, (shape,)),
        **others,
        "textbook": Side(textbook_step, (shape,), keeps_memory=False),
        OUR_ALLOCATOR: Side(textbook_step, (shape,)),
        "ceiling": Side(ceiling_step, (shape,)),
    }


def arithmetic(shape: Shape) -> dict[str, float]:
    """FLOPs of matrix products per token, forward and backward (three times forward), by side.

    The textbook's are those that its function needs, as ours are: what it computes beyond that is
    its own loss.
    """
    mass = cluster_shares(shape)
    ours, *others = (
        our_model(shape, name).flops_per_token(shape.batch, shape.segment, mass)
        for name in ("relative", *OTHERS)
    )
    width = shape.d_model
    attention = 2.0 * width * width * 4 + 4.0 * width * shape.segment
    dense = 4.0 * width * shape.d_ffn
    half = shape.slots // 2
    ceiling = half * (attention + dense) + ours.softmax + ours.embedding
    full = dict.fromkeys(("ours", "textbook", OUR_ALLOCATOR), 3 * ours.total)
    full |= {f"ours, {name}": 3 * costs.total for name, costs in zip(OTHERS, others, strict=True)}
    return full | {"ceiling": 3 * ceiling}


def cluster_shares(shape: Shape) -> tuple[float, ...]:
    """Part of the tokens in the head and in each tail."""
    weight_V = 1.0 / np.arange(1, shape.vocabulary + 1)
    bounds = (0, *shape.cutoffs, shape.vocabulary)
    total = weight_V.sum()
    return tuple(float(weight_V[low:high].sum() / total) for low, high in pairwise(bounds))


def matmul_gflops(
    rows: int, inner: int, columns: int, device: str = "cpu", precision: str = "float32"
) -> float:
    """A device's rate for one product of these sizes, the best of a second: the limit."""
    set_precision(precision, torch.device(device))
    kind: dict[str, Any] = {"device": device, "dtype": torch.float32}
    if precision == "bfloat16":
        kind["dtype"] = torch.bfloat16
    a, b = torch.randn(rows, inner, **kind), torch.randn(inner, columns, **kind)
    best_s, end_s = float("inf"), time.perf_counter() + 1.0
    while time.perf_counter() < end_s:
        began_s = time.perf_counter()
        for _ in range(10):
            product = a @ b
        # Reading a number waits for the device.
        product[0, 0].item()
        best_s = min(best_s, (time.perf_counter() - began_s) / 10)
    return 2.0 * rows * inner * columns / best_s / 1e9
