"""What bfloat16 products bring on this machine: time of a step, and the loss after some steps.

Both sides train the same weights on the same text of the Python library's sources with the same
random numbers, so the difference between their losses is that of the precision.

    python -m benchmarks.precision_time --shape large
    python -m benchmarks.precision_time --shape small --steps 300 --seeds 0,1,2
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.shapes import SIZES, Shape
from pipeline import cli

if TYPE_CHECKING:
    from data import Prepared

PRECISIONS = ("float32", "bfloat16")
LR = 5e-4


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.Parser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--shape", choices=SIZES, default="large")
    parser.add_argument("--steps", type=int, default=300, help="trained before losses are compared")
    cli.add_seeds(parser, "of the trainings", (0,))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=3, help="steps behind one figure")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    import torch

    from benchmarks.harness import Side, in_turn, write_result
    from benchmarks.sides import our_step

    shape, device = SIZES[arguments.shape], torch.device(arguments.device)
    sides = {name: Side(our_step, (shape, name, device)) for name in PRECISIONS}
    timings = in_turn(sides, rounds=arguments.rounds, calls=arguments.calls)
    rows = {name: timings.row(name) for name in PRECISIONS}
    for name, row in rows.items():
        print(f"{name:9s} {row['median_ms']:8.1f} ms [{row['low_ms']:.1f}-{row['high_ms']:.1f}]")
    ratio = timings.ratio("float32", "bfloat16")
    print(f"float32 takes {ratio:.2f} times as long", flush=True)
    prepared = text_of(shape)
    losses = []
    for seed in arguments.seeds:
        pair = {
            name: losses_after(arguments.steps, prepared, shape, name, seed, arguments.device)
            for name in PRECISIONS
        }
        losses.append({"seed": seed, **pair})
        train, valid = (relative([pair[name][part] for name in PRECISIONS]) for part in (0, 1))
        print(
            f"seed {seed}: nats after {arguments.steps} steps, training {pair['float32'][0]:.4f} "
            f"and {pair['bfloat16'][0]:.4f} ({train:+.2%}), validation {pair['float32'][1]:.4f} "
            f"and {pair['bfloat16'][1]:.4f} ({valid:+.2%})",
            flush=True,
        )
    found = {"shape": asdict(shape), "sides": rows, "ratio": ratio, "losses": losses}
    write_result(arguments.json, f"precision_time_{arguments.shape}", found)
    return 0


def relative(pair: Sequence[float]) -> float:
    """How much the second number lies above the first, as a part of it."""
    return pair[1] / pair[0] - 1


def text_of(shape: Shape) -> "Prepared":
    """The Python library's sources in as many pieces as the shape has words."""
    from data import DataConfig, TokenizerConfig, prepare

    tokenizer = TokenizerConfig(kind="bpe", vocabulary=shape.vocabulary)
    config = DataConfig(corpus="python-stdlib", tokenizer=tokenizer, validation_tokens=32_768)
    return prepare(config, Path.cwd(), progress=lambda message: None)


def losses_after(
    steps: int, prepared: "Prepared", shape: Shape, precision: str, seed: int, device: str
) -> tuple[float, float]:
    """The mean nats of the last tenth of the training steps, and the nats of the validation."""
    import torch

    from benchmarks.sides import ADAM, our_model, train_state
    from data import ContextBatches, EvaluationStreams
    from training.evaluation import evaluate
    from training.step import Forward, WeightStep

    torch.manual_seed(seed)
    model = our_model(replace(shape, vocabulary=prepared.tokenizer.vocabulary_size)).to(device)
    where = torch.device(device)
    batches = ContextBatches(prepared.tokens["train"], batch=shape.batch, segment=shape.segment)
    state = train_state(model, shape, where)
    step = WeightStep(Forward(where, precision), ADAM, lambda number: LR * min(1, number / 30))
    nats = []
    for state.step in range(steps):
        nats.append(float(step(state, batches.batch(state.step))["loss_nats"]))
    streams = EvaluationStreams(prepared.tokens["valid"], streams=16, segment=shape.segment)
    found = evaluate(model, streams, byte_length_V=None, device=where)
    return statistics.fmean(nats[-max(1, steps // 10) :]), found.nats_per_token


if __name__ == "__main__":
    sys.exit(main())
