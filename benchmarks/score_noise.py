"""How noisy the score of a training is, and what would make it less so.

Layouts of an experiment are trained with several seeds. Each training is scored by the weights of
the best step, of the last one, their moving averages and the mean of the last checkpoints, on more
or less validation text. `--share` says what the layouts of one seed begin with alike: nothing (as a
seed gives it to each layout), the embedding and softmax, or every block of one kind and number too.

    python -m benchmarks.score_noise train configs/layoutbench.yaml --share softmax --csv FILE
    python -m benchmarks.score_noise report FILE FILE ...

report: of each way the standard deviation of a training over seeds, the same without what is common
to the layouts of a seed, Kendall's tau between seeds, tau with the mean test nats of the other
seeds, and the validation tokens that were read. What is trained already is not trained again.

L layouts   S seeds
"""

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.layout_rows import Commands, Row, rows_of
from benchmarks.ranking import kendall
from data.batching import EvaluationStreams
from model import Architecture, LanguageModel, build_model, parse_layout
from pipeline import cli
from pipeline.derive import derive
from pipeline.experiment import load_experiment
from pipeline.plan import RunPlan, set_up
from pipeline.retrain import retrain_trainer
from training.state import Metrics, TrainState
from utils.files import csv_of, write_whole

SHARES = ("nothing", "softmax", "blocks")
DECAYS = (0.95, 0.98, 0.99, 0.995)
# Checkpoints whose mean is scored, so many steps in a hundred apart, up to the last.
LAST, APART = 5, 0.01
VALID_TOKENS = (32_768, 65_536, 131_072, 262_144)
COLUMNS = ("share", "layout", "seed", "weights", "split", "tokens", "nats")
Array = NDArray[np.float64]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, report=report)
    training, reporting = commands.named.values()
    training.add_argument("experiment", type=Path)
    training.add_argument("--set", action="append", default=[], help="override one key")
    training.add_argument(
        "--share",
        choices=SHARES,
        default="nothing",
        help="what layouts of one seed begin with alike",
    )
    training.add_argument("--layouts", nargs="+", required=True)
    cli.add_seeds(training, "of the trainings", (0, 1, 2, 3))
    training.add_argument("--csv", type=Path, required=True)
    reporting.add_argument("csv", type=Path, nargs="+")
    return commands.run(argv)


def train(arguments: argparse.Namespace) -> None:
    """Train and score what the file lacks, a training at a time."""
    rows = rows_of(arguments.csv)
    done = {(row["share"], row["layout"], row["seed"]) for row in rows}
    for seed, layout in itertools.product(arguments.seeds, arguments.layouts):
        if (arguments.share, layout, str(seed)) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            settings = [*arguments.set, f"run.seed={seed}", "run.figures=false"]
            plan = set_up(load_experiment(arguments.experiment, settings), Path(folder))
            scored = scores(plan, layout, arguments.share)
            named = {"share": arguments.share, "layout": layout, "seed": str(seed)}
            rows += [named | {name: str(value) for name, value in row.items()} for row in scored]
        write_whole(arguments.csv, csv_of(rows, COLUMNS))


def scores(plan: RunPlan, layout: str, share: str) -> list[dict[str, Any]]:
    """Train a layout and score its weights in every way."""
    architecture = derive(plan, method="layout", layout=layout)
    trainer = retrain_trainer(plan, architecture)
    begin_alike(plan, trainer.state.model, architecture, share)
    averages = Averages(trainer.steps)
    trainer = replace(trainer, recorders=[averages])
    trainer.open()
    try:
        trainer.run(plan.experiment.run)
        model = trainer.state.model
        weights = {"last": copied(model), **averages.weights()}
        trainer.take_best()
        weights["best"] = copied(model)
    finally:
        trainer.close()
    rows = list[dict[str, Any]]()
    for name, tensors in weights.items():
        model.load_state_dict(tensors)
        for split, tokens, streams in texts(plan):
            nats = plan.evaluate(model, streams).nats_per_token
            rows.append({"weights": name, "split": split, "tokens": tokens, "nats": nats})
    return rows


def texts(plan: RunPlan) -> Iterator[tuple[str, int, EvaluationStreams]]:
    """The validation text from its beginning, more and more of it, and the test text."""
    tokens = plan.prepared.tokens["valid"]
    for most in VALID_TOKENS:
        if most <= len(tokens):
            yield "valid", most, EvaluationStreams(tokens[:most], **plan.cut())
    yield "test", len(plan.prepared.tokens["test"]), plan.streams("test")


def copied(model: LanguageModel) -> dict[str, Tensor]:
    """Its weights, which do not change with it."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def begin_alike(
    plan: RunPlan, model: LanguageModel, architecture: Architecture, share: str
) -> None:
    """Overwrite what layouts of one seed share by what other layouts of that seed begin with."""
    if share == "nothing":
        return
    dense = _uniform(plan, architecture, "dense").state_dict()
    tables = {name: w for name, w in dense.items() if not name.startswith("slots.")}
    model.load_state_dict(tables, strict=False)
    if share == "blocks":
        for number, slot in enumerate(architecture.blocks):
            donor = _uniform(plan, architecture, slot.label)
            model.slots[number].load_state_dict(donor.slots[number].state_dict())


def _uniform(plan: RunPlan, architecture: Architecture, label: str) -> LanguageModel:
    slots = tuple(parse_layout(label, plan.candidates)) * len(architecture.blocks)
    torch.manual_seed(plan.seed)
    return build_model(architecture.model_copy(update={"blocks": slots}))


@dataclass
class Averages:
    """Records moving averages of the weights, and those of the last checkpoints."""

    steps: int
    moving: dict[float, dict[str, Tensor]] = field(default_factory=dict)
    last: list[dict[str, Tensor]] = field(default_factory=list)

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Take the weights in after a step."""
        now = {name: tensor.detach() for name, tensor in state.model.state_dict().items()}
        for decay in DECAYS:
            # A short past counts as such: the beginning must not stay in the average.
            share = 1.0 - min(decay, (1 + state.step) / (10 + state.step))
            if decay not in self.moving:
                self.moving[decay] = copied(state.model)
            for name, tensor in self.moving[decay].items():
                tensor.lerp_(now[name], share)
        apart = max(1, round(APART * self.steps))
        left = self.steps - state.step
        if left % apart == 0 and left < LAST * apart:
            self.last.append(copied(state.model))

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """What is scored, by its name."""
        assert len(self.last) == LAST
        mean = {
            name: torch.stack([weights[name] for weights in self.last]).mean(0)
            for name in self.last[0]
        }
        return {"mean of 5": mean, **{f"ema {decay}": w for decay, w in self.moving.items()}}


def report(arguments: argparse.Namespace) -> None:
    """Print what each way of scoring is worth."""
    rows = list(itertools.chain.from_iterable(map(rows_of, arguments.csv)))
    shares = dict.fromkeys(row["share"] for row in rows)
    ways = dict.fromkeys((row["weights"], row["split"], row["tokens"]) for row in rows)
    print("share     weights    split  tokens   sd      paired  spread  tau    tau of test  mean")
    for share in shares:
        truth_LS = nats_LS(rows, share, ("best", *truth_split(rows)))
        for way in ways:
            score_LS = nats_LS(rows, share, way)
            figures = judged(score_LS, truth_LS)
            shown = "  ".join(f"{value:.4f}" for value in figures.values())
            print(f"{share:9} {way[0]:10} {way[1]:6} {way[2]:>7}  {shown}")


def truth_split(rows: Sequence[Row]) -> tuple[str, str]:
    """The test text."""
    return next((row["split"], row["tokens"]) for row in rows if row["split"] == "test")


def nats_LS(rows: Sequence[Row], share: str, way: tuple[str, str, str]) -> Array:
    """Nats by layout and seed."""
    nats = {
        (row["layout"], row["seed"]): float(row["nats"])
        for row in rows
        if row["share"] == share and (row["weights"], row["split"], row["tokens"]) == way
    }
    layouts, seeds = (sorted({key[i] for key in nats}) for i in range(2))
    return np.array([[nats[layout, seed] for seed in seeds] for layout in layouts])


def judged(score_LS: Array, truth_LS: Array) -> Mapping[str, float]:
    """The figures of `report`."""
    layouts, seeds = score_LS.shape
    deviation = float(np.sqrt(score_LS.var(axis=1, ddof=1).mean()))
    rest_LS = score_LS - score_LS.mean(1, keepdims=True) - score_LS.mean(0) + score_LS.mean()
    paired = float(np.sqrt((rest_LS**2).sum() / ((layouts - 1) * (seeds - 1))))
    pairs = itertools.combinations(range(seeds), 2)
    tau = statistics.fmean(kendall(score_LS[:, a], score_LS[:, b]) or 0.0 for a, b in pairs)
    others = (np.delete(truth_LS, seed, axis=1).mean(axis=1) for seed in range(seeds))
    of_test = statistics.fmean(
        kendall(score_LS[:, seed], other_L) or 0.0 for seed, other_L in enumerate(others)
    )
    spread = float(score_LS.mean(axis=1).std(ddof=1))
    return {
        "sd": deviation,
        "paired": paired,
        "spread": spread,
        "tau": tau,
        "tau of test": of_test,
        "mean": float(score_LS.mean()),
    }


if __name__ == "__main__":
    sys.exit(main())
