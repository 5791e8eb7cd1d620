"""Do computed cutoffs cost perplexity, and is the step slower, against those set by hand?

Trains one layout with the experiment's own cutoffs and with `cutoffs: auto` of as many clusters,
for several seeds, and prints test perplexities and their ratio. Then takes training steps of both
in turn in one process and prints the median time of each. Started again, it goes on where it was.

    python -m benchmarks.auto_cutoffs benchmarks/six_blocks.yaml --run runs/auto --seeds 0,1,2
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import cli

if TYPE_CHECKING:
    from training.trainer import Trainer

WARM_STEPS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.Parser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--layout", default="interleaved")
    parser.add_argument("--clusters", type=int, help="of auto (default: as many as by hand)")
    cli.add_seeds(parser, "of the trainings", (0, 1, 2))
    parser.add_argument("--timed-steps", type=int, default=100)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args(argv)
    import retrain

    sides = settings_of_sides(arguments)
    results: dict[str, list[dict[str, object]]] = {side: [] for side in sides}
    for seed in arguments.seeds:
        for side, settings in sides.items():
            run = arguments.run / side
            command = [str(arguments.experiment), "--run", str(run), "--layout", arguments.layout]
            for setting in [*settings, f"run.seed={seed}"]:
                command += ["--set", setting]
            if code := retrain.main(command):
                return code
            (path,) = run.glob(f"retrain/*/seed-{seed}/result.json")
            results[side].append(json.loads(path.read_text()))
    print_perplexities(results)
    print_times(arguments, sides)
    return 0


def settings_of_sides(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """What each side overrides of the experiment."""
    from pipeline.experiment import load_experiment

    by_hand = load_experiment(arguments.experiment, arguments.set).model.softmax
    clusters = arguments.clusters or len(by_hand.cutoffs) + 1
    auto = ["model.softmax.cutoffs=auto", f"model.softmax.clusters={clusters}"]
    return {"by_hand": arguments.set, "auto": [*arguments.set, *auto]}


def print_perplexities(results: dict[str, list[dict[str, object]]]) -> None:
    """One row per seed, and the ratio of the perplexities of mean nats."""
    print("\n| cutoffs | seed | parameters | FLOPs per token | test nats/token | perplexity |")
    print("|---|---|---|---|---|---|")
    nats: dict[str, list[float]] = {side: [] for side in results}
    for side, rows in results.items():
        for row in rows:
            test = row["test"]
            assert isinstance(test, dict)
            nats[side].append(test["nats_per_token"])
            print(
                f"| {side} | {row['seed']} | {row['parameters']:,} | {row['flops_per_token']:,.0f} "
                f"| {test['nats_per_token']:.4f} | {test['perplexity']:.2f} |"
            )
    differences = [a - b for a, b in zip(nats["auto"], nats["by_hand"], strict=True)]
    mean = statistics.fmean(differences)
    print(
        f"\nauto less by hand: {mean:+.4f} nats/token (each seed: "
        f"{', '.join(f'{d:+.4f}' for d in differences)}); perplexity {100 * mean:+.2f}% "
        "to first order"
    )


def print_times(arguments: argparse.Namespace, sides: dict[str, list[str]]) -> None:
    """Median time of a training step; the sides take steps in turn."""
    import torch

    from benchmarks.cpu_counters import other_cores, read_cpu
    from benchmarks.softmax_constants import processor

    trainers = {side: trainer_of(arguments, side, settings) for side, settings in sides.items()}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    before = read_cpu()
    for number in range(WARM_STEPS + arguments.timed_steps):
        for side, trainer in trainers.items():
            batch = trainer.batches.batch(number)
            start_s = time.perf_counter()
            trainer.step(trainer.state, batch)
            trainer.state.step += 1
            if number >= WARM_STEPS:
                seconds[side].append(time.perf_counter() - start_s)
    after = read_cpu()
    busy = f"{other_cores(before, after):.2f}" if before and after else "unknown"
    ratio = statistics.median(
        a / b for a, b in zip(seconds["auto"], seconds["by_hand"], strict=True)
    )
    print(
        f"\n{processor()}, {torch.get_num_threads()} threads of {os.cpu_count()} cores, torch "
        f"{torch.__version__}; cores that others used: {busy}; {arguments.timed_steps} steps a side"
    )
    for side, found in seconds.items():
        bounds = trainers[side].state.model.softmax.bounds
        print(f"{side}: cutoffs {bounds[:-1]}, median step {statistics.median(found) * 1e3:.2f} ms")
    print(f"median ratio of the pairs, auto / by hand: {ratio:.3f}")


def trainer_of(arguments: argparse.Namespace, side: str, settings: list[str]) -> "Trainer":
    """The retraining of one side from its beginning; nothing of it is written."""
    from pipeline.experiment import load_experiment
    from pipeline.plan import set_up
    from pipeline.retrain import find_architecture, retrain_trainer

    plan = set_up(load_experiment(arguments.experiment, settings), arguments.run / side)
    trainer = retrain_trainer(plan, find_architecture(plan, None, arguments.layout))
    trainer.state.model.train()
    return trainer


if __name__ == "__main__":
    sys.exit(main())
