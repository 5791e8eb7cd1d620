"""When models begin to copy: nats of tokens that could be copied, over the steps of a training.

    python -m benchmarks.copying_onset train FILE.yaml --layout LETTERS --csv FILE --name WORDS
    python -m benchmarks.copying_onset draw --csv FILE --figure FILE

train: a training of retrain.py that reads the validation text after every so many steps, by the
groups of benchmarks/copying.py; one that has rows is not made again. draw: nats of copied tokens
over the steps, and where copying began: the first reading at which pairs that the training text
hardly knows cost less than all other tokens, as nothing but the context tells them.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.copying import GROUPS, groups_of, nats_by_group
from benchmarks.layout_rows import Commands, Row, rows_of
from pipeline import cli
from pipeline.experiment import load_experiment
from pipeline.plan import set_up
from pipeline.retrain import find_architecture, retrain_trainer
from report.plotting import colours, framed, png
from training.state import TrainState
from utils.files import csv_of, write_whole

COLUMNS = ("name", "layout", "seed", "step", *GROUPS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, draw=draw)
    commands.add_experiment("train", "runs/copying-onset")
    one = commands.named["train"]
    one.add_argument("--layout", required=True, help="letters of blocks")
    one.add_argument("--name", required=True, help="how it is trained, for the figure")
    one.add_argument("--every", type=cli.number_from(1), default=250, help="steps between readings")
    commands.named["draw"].add_argument("--figure", type=Path, required=True, help="a PNG")
    for each in commands.named.values():
        each.add_argument("--csv", type=Path, required=True)
    return commands.run(argv)


def train(arguments: argparse.Namespace) -> None:
    """Train a layout and add its rows."""
    experiment, rows = load_experiment(arguments.experiment, arguments.set), rows_of(arguments.csv)
    layout, seed = arguments.layout.replace(" ", ""), str(experiment.run.seed)
    own = {"name": arguments.name, "layout": layout, "seed": seed}
    if any(own.items() <= row.items() for row in rows):
        return
    plan = set_up(experiment, arguments.run / arguments.name.replace(" ", "-") / layout)
    streams, train_N = plan.streams("valid"), np.asarray(plan.prepared.tokens["train"])
    group_BT = groups_of(streams, train_N.astype(np.int64), experiment.model.memory)
    path = arguments.run / f"{plan.run_dir.parent.name}-{layout}-{seed}.csv"

    def read(state: TrainState, metrics: Mapping[str, Any]) -> None:
        if state.step % arguments.every:
            return
        nats = nats_by_group(state.model, streams, group_BT)
        state.model.train()
        before = [row for row in rows_of(path) if int(row["step"]) < state.step]
        values = zip(GROUPS, (f"{one:.4f}" for one in nats), strict=True)
        write_whole(
            path, csv_of([*before, own | {"step": str(state.step)} | dict(values)], COLUMNS)
        )

    architecture = find_architecture(plan, None, layout.ljust(experiment.model.n_blocks, "i"))
    with closing(retrain_trainer(plan, architecture)) as trainer:
        trainer.recorders = [*trainer.recorders, read]
        trainer.open()
        trainer.run(experiment.run)
    write_whole(arguments.csv, csv_of([*rows_of(arguments.csv), *rows_of(path)], COLUMNS))


def onset(rows: Sequence[Row]) -> int | None:
    """The first step at which rare pairs cost less than the other tokens."""
    rare, _, others = GROUPS
    return next((int(row["step"]) for row in rows if float(row[rare]) < float(row[others])), None)


def draw(arguments: argparse.Namespace) -> None:
    """Draw the rows of a CSV."""
    write_whole(arguments.figure, png(onset_figure(rows_of(arguments.csv))))


def onset_figure(rows: Sequence[Row]) -> Figure:
    """Copied tokens of rare pairs, where a point marks their onset, and what is not copied."""
    trainings: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        trainings.setdefault((row["name"], row["layout"], row["seed"]), []).append(row)
    colour_of = colours(list(dict.fromkeys(name for name, *_ in trainings)))
    dashes = dict(
        zip(dict.fromkeys(layout for _, layout, _ in trainings), ["-", "--", ":"], strict=False)
    )
    with framed(9.0, 3.8, 1, 2, left=0.7, top=0.5, bottom=0.55) as (figure, grid):
        for axes, group in zip(grid[0], (GROUPS[0], GROUPS[2]), strict=True):
            for (name, layout, _), of_training in trainings.items():
                steps = [int(row["step"]) for row in of_training]
                nats = [float(row[group]) for row in of_training]
                style = {"color": colour_of[name], "linestyle": dashes[layout], "linewidth": 1.2}
                axes.plot(steps, nats, **style, label=f"{name}, {layout}")
                if group == GROUPS[0] and (began := onset(of_training)) is not None:
                    axes.plot(began, nats[steps.index(began)], "o", color=colour_of[name])
            axes.set_xlabel("step")
            axes.grid(axis="y")
        grid[0, 0].set_title("tokens to be copied, of rare pairs", loc="left")
        grid[0, 1].set_title("other tokens", loc="left")
        grid[0, 0].set_ylabel("validation loss, nats per token")
        grid[0, 1].legend(loc="upper right")
    return figure


if __name__ == "__main__":
    sys.exit(main())
