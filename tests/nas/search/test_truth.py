"""The search finds what is true, on a task whose layout is known: attention first, dense second.

The next of 32 tokens is a fixed random table's entry for (current token, token k back), and in
one step of four a random token instead; without that noise the stream falls into a short cycle.
Attention must fetch the token k back; only then can a dense block look the pair up.
"""

import numpy as np
import pytest
import torch

from data import ContextBatches, EvaluationStreams
from model import Candidate, LanguageModel, ModelConfig, layout_letters
from nas.search.config import SearchConfig
from nas.search.plan import SearchPlan
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from tests.nas.search.test_step import FORWARD
from training.config import OptimiserConfig
from training.evaluation import evaluate
from training.optim import build_optimiser, rate_of
from training.state import Step, TrainState
from training.step import WeightStep

TOKENS, BACK, NOISE = 32, 3, 0.25
BATCH, SEGMENT = 32, 32
MODEL = ModelConfig.model_validate(
    {
        "n_blocks": 2,
        "d_model": 16,
        "n_heads": 1,
        "d_ffn": 512,
        "memory": 8,
        "dropout": 0.0,
        "candidates": ["attention", "dense"],
    }
)
OPTIMISER = OptimiserConfig(lr=1e-2, warmup_steps=20, schedule="cosine", weight_decay=0.0)
_ENTRY = 1 - NOISE + NOISE / TOKENS
# Entropy of the next token for one who knows the table.
FLOOR_NATS = -_ENTRY * np.log(_ENTRY) - (TOKENS - 1) * NOISE / TOKENS * np.log(NOISE / TOKENS)


def stream(length: int, seed: int) -> np.ndarray:
    """Tokens of the task; the table is the same for every seed."""
    table = np.random.default_rng(0).integers(TOKENS, size=(TOKENS, TOKENS))
    generator = np.random.default_rng([1, seed])
    random = generator.integers(TOKENS, size=length)
    noisy = generator.random(length) < NOISE
    tokens = random.copy()
    for t in range(BACK + 1, length):
        if not noisy[t]:
            tokens[t] = table[tokens[t - 1], tokens[t - 1 - BACK]]
    return tokens.astype(np.uint16)


def build(slots: list[tuple[Candidate, ...]], seed: int) -> LanguageModel:
    """A model of these slots."""
    torch.manual_seed(seed)
    return LanguageModel(slots, d_model=16, vocabulary_size=TOKENS, softmax=MODEL.softmax)


def layouts() -> dict[str, tuple[Candidate, Candidate]]:
    """The four layouts of two slots."""
    candidates = MODEL.completed_candidates()
    pairs = [(first, second) for first in candidates for second in candidates]
    return {layout_letters(pair): pair for pair in pairs}


def train(state: TrainState, batches: ContextBatches, step: Step, until: int) -> None:
    """The loop of `training.trainer` without hooks, files and signals."""
    state.model.train()
    while state.step < until:
        step(state, batches.batch(state.step))
        state.step += 1


def train_alone(layout: tuple[Candidate, ...], steps: int, seed: int) -> float:
    """Nats per token of a layout on fresh text, trained alone."""
    model = build([(candidate,) for candidate in layout], seed)
    state = TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, OPTIMISER)},
        streams={"weights": model.initial_state(BATCH)},
    )
    batches = ContextBatches(stream(400_000, seed), batch=BATCH, segment=SEGMENT)
    train(state, batches, WeightStep(FORWARD, OPTIMISER, rate_of(OPTIMISER, steps)), steps)
    text = EvaluationStreams(stream(20_000, seed + 100), streams=BATCH, segment=SEGMENT)
    lengths_V = torch.ones(TOKENS, dtype=torch.int64)
    return evaluate(model, text, byte_length_V=lengths_V, device=torch.device("cpu")).nats_per_token


def search(steps: int, seed: int, *, cut_alpha: bool = False, **settings: object) -> np.ndarray:
    """Final pi of a search; `cut_alpha` takes alpha's gradient away."""
    config = SearchConfig.model_validate({"steps": steps, "optimiser": OPTIMISER, **settings})
    plan = SearchPlan(config, steps, memory=MODEL.memory, segment=SEGMENT)
    model = build([MODEL.completed_candidates()] * 2, seed)
    alpha_LC = build_alpha(2, 2)
    if cut_alpha:
        alpha_LC.register_hook(torch.zeros_like)
    state = TrainState(
        model=model,
        optimisers={
            "weights": build_optimiser(model, OPTIMISER),
            "alpha": build_alpha_optimiser(alpha_LC, plan),
        },
        streams={"weights": model.initial_state(BATCH)},
        parameters={"alpha": alpha_LC},
    )
    batches = ContextBatches(stream(400_000, seed), batch=BATCH, segment=SEGMENT)
    step = SearchStep(plan, WeightStep(FORWARD, OPTIMISER, rate_of(OPTIMISER, steps)), seed)
    train(state, batches, step, steps)
    return torch.softmax(alpha_LC.detach(), -1).numpy()


STEPS = 600


@pytest.mark.slow
def test_only_attention_then_dense_solves_the_task() -> None:
    nats = {name: train_alone(layout, STEPS, seed=0) for name, layout in layouts().items()}
    assert nats.pop("a d") < FLOOR_NATS + 0.4
    assert min(nats.values()) > FLOOR_NATS + 1.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_search_finds_attention_then_dense(seed: int) -> None:
    pi_LC = search(STEPS, seed)
    assert pi_LC[0, 0] >= 0.8
    assert pi_LC[1, 1] >= 0.8


def test_with_alphas_gradient_cut_pi_stays_uniform_and_the_check_above_fails() -> None:
    pi_LC = search(60, 0, cut_alpha=True)
    assert np.allclose(pi_LC, 0.5)
    assert not pi_LC[0, 0] >= 0.8


def test_uncut_the_same_short_search_moves() -> None:
    assert not np.allclose(search(60, 0), 0.5)
