"""Which layouts recall what stands earlier in a sequence, and after how many steps.

Small models of a layout are trained on in-context recall and selective copy, each with several
learning rates and seeds, until 99.5% of the answers are right or the steps are used up. A model
without attention can only guess: that is the control, as all attention is on the other side.

    python -m benchmarks.recall train --layouts aaaa dddd adad --csv FILE --workers 2
    python -m benchmarks.recall report --csv FILE

report: of each layout the share of right answers, the best of its trainings and their median, and
the fewest steps to 95%. What is trained already is not trained again.

B batch   T length
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from benchmarks.layout_rows import Commands, Row, rows_of
from benchmarks.recall_tasks import CHANCE, TASKS, VOCABULARY, Examples
from model import LanguageModel, ModelConfig, SoftmaxConfig, parse_layout
from pipeline import cli
from utils.files import csv_of, write_whole

WIDTH, HEADS, BATCH, LENGTH = 64, 4, 64, 32
RATES, SEEDS = (1e-3, 3e-3), (0, 1)
WARMUP, EVERY, TESTED = 100, 100, 16
ENOUGH, LEARNT = 0.995, 0.95
COLUMNS = ("task", "layout", "lr", "seed", "most_steps", "steps", "accuracy", "steps_to_95")
Training = tuple[str, str, float, int, int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, report=report)
    training = commands.named["train"]
    training.add_argument("--layouts", nargs="+", required=True)
    training.add_argument("--steps", type=cli.number_from(1), default=3000, metavar="N")
    training.add_argument("--workers", type=cli.number_from(1), default=1, metavar="N")
    for one in commands.named.values():
        one.add_argument("--csv", type=Path, required=True)
    return commands.run(argv)


def train(arguments: argparse.Namespace) -> None:
    """Train what has no row yet; a row is written as soon as a training ends."""
    rows = rows_of(arguments.csv)
    done = {tuple(row[name] for name in COLUMNS[:5]) for row in rows}
    wanted = itertools.product(TASKS, arguments.layouts, RATES, SEEDS, [arguments.steps])
    missing = [one for one in wanted if tuple(map(str, one)) not in done]
    with ProcessPoolExecutor(arguments.workers) as pool:
        for future in as_completed([pool.submit(trained, *one) for one in missing]):
            rows.append(future.result())
            write_whole(arguments.csv, csv_of(rows, COLUMNS))
            print(", ".join(rows[-1].values()), flush=True)


def trained(task: str, layout: str, lr: float, seed: int, most_steps: int) -> Row:
    """The row of one training."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = model_of(layout)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    text, test = (torch.Generator().manual_seed(1000 * kind + seed) for kind in (1, 2))
    tests = [TASKS[task](BATCH, LENGTH, test) for _ in range(TESTED)]
    right, learnt, step = 0.0, "", 0
    while step < most_steps and right < ENOUGH:
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / WARMUP)
        optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward([answer_nats(model, TASKS[task](BATCH, LENGTH, text))])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % EVERY == 0 or step == most_steps:
            right = accuracy(model, tests)
            learnt = learnt or (str(step) if right >= LEARNT else "")
    values = (task, layout, lr, seed, most_steps, step, round(right, 4), learnt)
    return dict(zip(COLUMNS, map(str, values), strict=True))


def model_of(layout: str) -> LanguageModel:
    """A small model that sees the whole sequence in one segment."""
    config = ModelConfig(
        n_blocks=len(layout),
        d_model=WIDTH,
        n_heads=HEADS,
        d_ffn=2 * WIDTH,
        memory=0,
        dropout=0.0,
        candidates=["attention", "dense", "identity"],
    )
    slots = parse_layout(layout, config.completed_candidates())
    softmax = SoftmaxConfig(cutoffs=[])
    return LanguageModel(
        [[slot] for slot in slots], d_model=WIDTH, vocabulary_size=VOCABULARY, softmax=softmax
    )


def answer_nats(model: LanguageModel, examples: Examples) -> torch.Tensor:
    """Mean nats of the answers."""
    h_BTD, *_ = model(examples.input_BT, model.initial_state(len(examples.input_BT)))
    return model.nll(h_BTD, examples.target_BT)[examples.is_answer_BT].mean()


@torch.no_grad()
def accuracy(model: LanguageModel, tests: Sequence[Examples]) -> float:
    """Share of the answers whose likeliest token is right."""
    right, answers = 0, 0
    for examples in tests:
        h_BTD, *_ = model(examples.input_BT, model.initial_state(len(examples.input_BT)))
        is_right_BT = model.log_prob(h_BTD).argmax(dim=-1) == examples.target_BT
        right += int(is_right_BT[examples.is_answer_BT].sum())
        answers += int(examples.is_answer_BT.sum())
    return right / answers


def report(arguments: argparse.Namespace) -> None:
    """Print what each layout reached."""
    print("\n".join(lines_of(rows_of(arguments.csv))))


def lines_of(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each task and layout, after one for chance."""
    yield f"chance: {CHANCE:.1%}"
    for task, layout in dict.fromkeys((row["task"], row["layout"]) for row in rows):
        ours = [row for row in rows if (row["task"], row["layout"]) == (task, layout)]
        right = [float(row["accuracy"]) for row in ours]
        steps = [int(row["steps_to_95"]) for row in ours if row["steps_to_95"]]
        fastest = f"{LEARNT:.0%} after {min(steps):,} steps" if steps else f"never {LEARNT:.0%}"
        yield (
            f"{task:18} {layout:14} best {max(right):6.1%}  median {statistics.median(right):6.1%}"
            f"  {len(steps)} of {len(ours)} trainings learn it; {fastest}"
        )


if __name__ == "__main__":
    sys.exit(main())
