"""How long a hard draw should stand where attention must read the memory.

A copy task: the next of 16 tokens is the one 24 back, and in one case of four a random one. A
segment has 16 tokens, so that the token lies in the memory, which the subnets of earlier draws
made. All layouts of 3 slots of attention or dense are trained alone; then hard searches hold each
draw for 1, 4 and 8 steps.

    python -m benchmarks.draw_holding --json benchmarks/results/draw_holding.json
"""

import itertools
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness import write_result
from data import ContextBatches, EvaluationStreams
from model import LanguageModel, ModelConfig, SoftmaxConfig
from model.blocks import Candidate
from nas.search.config import SearchConfig
from nas.search.plan import SearchPlan
from nas.search.step import SearchStep, build_alpha, build_alpha_optimiser
from pipeline import cli
from training.config import OptimiserConfig
from training.evaluation import evaluate
from training.optim import build_optimiser, rate_of
from training.state import Step, TrainState
from training.step import Forward, WeightStep

TOKENS, BACK, NOISE = 16, 24, 0.25
BATCH, SEGMENT, SLOTS = 16, 16, 3
MODEL = ModelConfig(
    n_blocks=SLOTS,
    d_model=32,
    n_heads=2,
    d_ffn=64,
    memory=32,
    dropout=0.0,
    candidates=["attention", "dense"],
)
OPTIMISER = OptimiserConfig(lr=5e-3, warmup_steps=50, schedule="cosine", weight_decay=0.0)
FORWARD = Forward(torch.device("cpu"), "float32")
HOLDS = (1, 4, 8)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.Parser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--steps", type=int, default=1000)
    cli.add_seeds(parser, "of the searches", (0, 1, 2))
    parser.add_argument("--estimators", nargs="+", default=["single_path", "straight_through"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(f"a copier's nats {floor_nats():.3f}, without memory {math.log(TOKENS):.3f}")
    alone = {}
    for layout in map("".join, itertools.product("ad", repeat=SLOTS)):
        alone[layout] = train_alone(layout, arguments.steps, 0)
        print(f"{layout} alone: {alone[layout]:.3f} nats", flush=True)
    print("\n| estimator | hold | pi(attention) by slot, mean over seeds | layouts | their nats |")
    print("|---|---|---|---|---|")
    rows = []
    for estimator, hold in itertools.product(arguments.estimators, HOLDS):
        settings = {"estimator": estimator, "resample_every": hold}
        found = [search(arguments.steps, seed, **settings) for seed in arguments.seeds]
        rows.append({**settings, "pi_attention": [pi_LC[:, 0].tolist() for pi_LC in found]})
        print(_line(rows[-1], alone), flush=True)
    fixed = {"steps": arguments.steps, "seeds": arguments.seeds}
    write_result(arguments.json, "draw_holding", {**fixed, "alone": alone, "searches": rows})
    return 0


def _line(row: dict[str, object], alone: dict[str, float]) -> str:
    pi_NL = np.array(row["pi_attention"])
    layouts = ["".join("ad"[int(pi < 0.5)] for pi in pi_L) for pi_L in pi_NL]
    mean = " ".join(f"{pi:.2f}" for pi in pi_NL.mean(0))
    nats = statistics.fmean(alone[layout] for layout in layouts)
    return f"| {row['estimator']} | {row['hold']} | {mean} | {' '.join(layouts)} | {nats:.3f} |"


def floor_nats() -> float:
    """Entropy of the next token for one who copies."""
    hit, miss = 1 - NOISE + NOISE / TOKENS, NOISE / TOKENS
    return -hit * math.log(hit) - (TOKENS - 1) * miss * math.log(miss)


def stream(length: int, seed: int) -> NDArray[np.uint16]:
    """Tokens of the task."""
    generator = np.random.default_rng([2, seed])
    tokens = generator.integers(TOKENS, size=length)
    noisy = generator.random(length) < NOISE
    for t in range(BACK, length):
        if not noisy[t]:
            tokens[t] = tokens[t - BACK]
    return tokens.astype(np.uint16)


def train(state: TrainState, batches: ContextBatches, step: Step, until: int) -> None:
    """The loop of `training.trainer` without hooks, files and signals."""
    state.model.train()
    while state.step < until:
        step(state, batches.batch(state.step))
        state.step += 1


def train_alone(layout: str, steps: int, seed: int) -> float:
    """Nats per token of a layout on fresh text, trained alone."""
    by_letter = dict(zip("ad", MODEL.completed_candidates(), strict=True))
    model = build([(by_letter[letter],) for letter in layout], seed)
    state = _state(model)
    train(state, _batches(seed), _weight_step(steps), steps)
    text = EvaluationStreams(stream(20_000, seed + 100), streams=BATCH, segment=SEGMENT)
    length_V = torch.ones(TOKENS, dtype=torch.int64)
    return evaluate(model, text, byte_length_V=length_V, device=FORWARD.device).nats_per_token


def search(steps: int, seed: int, **settings: object) -> NDArray[np.float32]:
    """Final pi of a search."""
    config = SearchConfig.model_validate({"steps": steps, "optimiser": OPTIMISER, **settings})
    plan = SearchPlan(config, steps, memory=MODEL.memory, segment=SEGMENT)
    model = build([MODEL.completed_candidates()] * SLOTS, seed)
    alpha_LC = build_alpha(SLOTS, 2)
    state = _state(model)
    state.parameters["alpha"] = alpha_LC
    state.optimisers["alpha"] = build_alpha_optimiser(alpha_LC, plan)
    train(state, _batches(seed), SearchStep(plan, _weight_step(steps), seed), steps)
    pi_LC: NDArray[np.float32] = torch.softmax(alpha_LC.detach(), -1).numpy()
    return pi_LC


def build(slots: Sequence[tuple[Candidate, ...]], seed: int) -> LanguageModel:
    """A model of these slots."""
    torch.manual_seed(seed)
    return LanguageModel(
        slots, d_model=MODEL.d_model, vocabulary_size=TOKENS, softmax=SoftmaxConfig()
    )


def _state(model: LanguageModel) -> TrainState:
    return TrainState(
        model=model,
        optimisers={"weights": build_optimiser(model, OPTIMISER)},
        streams={"weights": model.initial_state(BATCH)},
    )


def _batches(seed: int) -> ContextBatches:
    return ContextBatches(stream(300_000, seed), batch=BATCH, segment=SEGMENT)


def _weight_step(steps: int) -> WeightStep:
    return WeightStep(FORWARD, OPTIMISER, rate_of(OPTIMISER, steps))


if __name__ == "__main__":
    sys.exit(main())
