"""What searches' SuperNets say of layouts that were trained alone, and what alpha hears of it.

The rank correlation of their mean scores of all layouts of a table, one-hot, with their test nats,
beside that of counting, and the ceiling; of the first SuperNet how attention instead of
dense changes the mean of both, slot by slot; and alpha's mean gradient at alpha 0 on the training
text, by each estimator and by the losses of discrete layouts in opposite pairs.

    python search.py configs/layoutbench.yaml --run runs/spos --set search.estimator=spos
    python -m benchmarks.supernet_against_table runs/spos

L slots   N layouts   P passes
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.layoutbench.rank_report import as_text
from benchmarks.layoutbench.table import read_table
from benchmarks.ranking import kendall, ranking
from model import LanguageModel, Mix, StreamState, parse_layout
from nas.search.estimators import ESTIMATORS, gumbel_noise
from pipeline import cli
from pipeline.cli import SAVED
from pipeline.experiment import experiment_of
from pipeline.layout_scores import SupernetScores, load_supernet
from pipeline.plan import RunPlan, set_up
from training.state import Batch

TABLE = Path("benchmarks/results/layoutbench.csv")
# Passes at the start fill the memories.
FIRST = 4
Array = NDArray[np.float64]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders with a finished search")
    parser.set_defaults(saved=SAVED, run=None)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--among", type=Path, help="a table: only its networks (default: all)")
    parser.add_argument("--tokens", type=int, help="of validation, for scores (default: all)")
    parser.add_argument("--passes", type=int, default=60, help="of training text, for gradients")
    arguments = parser.parse_args(argv)
    with cli.user_errors():
        show(arguments)
    return 0


def show(arguments: argparse.Namespace) -> None:
    """Print all of it."""
    plans = [_plan(arguments, run) for run in arguments.runs]
    plan, table = plans[0], read_table(arguments.table)
    if arguments.among is not None:
        table = table.among(read_table(arguments.among))
    nats, flops = table.mean_nats("test"), {row.layout: row.flops_per_token for row in table.rows}
    score_RN = np.array([scores(plan, list(nats), arguments.tokens) for plan in plans])
    score_N, truth_N = score_RN[0], np.array(list(nats.values()))
    counted = {
        "FLOPs": np.array([flops[layout] for layout in nats]),
        "attention blocks": np.array([float(layout.count("a")) for layout in nats]),
    }
    alone_SN = np.array(list(table.nats("test").values())).T
    print(as_text("all", ranking(alone_SN, score_RN.mean(0), counted)))
    alone = ", ".join(f"{kendall(each_N, truth_N):.3f}" for each_N in score_RN)
    print(f"each SuperNet by itself: {alone}")
    print(
        f"its best: {list(nats)[score_N.argmin()]}, the table's: {min(nats, key=nats.__getitem__)}"
    )
    for name, value_N in (("SuperNet", score_N), ("trained alone", truth_N)):
        print(_row(f"first candidate less second, {name}", effects(list(nats), value_N)))
    for name, gradient_PL in gradients(plan, arguments.passes).items():
        error = gradient_PL.std(0, ddof=1).max() / len(gradient_PL) ** 0.5
        words = f"d loss / d alpha of the first, {name} (se {error:.4f})"
        print(_row(words, gradient_PL.mean(0)), flush=True)


def _plan(arguments: argparse.Namespace, run: Path) -> RunPlan:
    arguments.experiment = run
    return set_up(*experiment_of(arguments))


def _row(words: str, value_L: Array) -> str:
    return f"{words:60s} " + " ".join(f"{value:+.4f}" for value in value_L)


def scores(plan: RunPlan, layouts: Sequence[str], tokens: int | None) -> Array:
    """Nats per token of each layout by the SuperNet's weights."""
    supernet_scores = SupernetScores(plan, [plan.experiment.run.seed], tokens)
    candidates = plan.experiment.model.completed_candidates()
    parsed = [parse_layout(layout, candidates) for layout in layouts]
    return np.array([supernet_scores.score(layout).nats_per_token for layout in parsed])


def effects(layouts: Sequence[str], value_N: Array) -> Array:
    """Per slot the mean of layouts with the first letter less that of those with another."""
    first = min("".join(layouts))
    has_NL = np.array([[letter == first for letter in layout] for layout in layouts])
    return np.array([value_N[has_N].mean() - value_N[~has_N].mean() for has_N in has_NL.T])


def gradients(plan: RunPlan, passes: int) -> dict[str, Array]:
    """The gradient in the first candidate's alpha by slot, at alpha 0, pass by pass."""
    net = load_supernet(plan)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    names = [name for name in ESTIMATORS if name != "spos"]
    found = {
        f"{name}, tau {tau:g}": _passes(plan, net, passes, _by_estimator(name, tau))
        for name in names
        for tau in (1.0, 0.3)
    }
    return found | {"discrete pairs": _passes(plan, net, passes, _by_pairs)}


# The loss of a mix on the batch at hand, to what gradient it gives.
Loss = Callable[[Mix], Tensor]
Gradient = Callable[[Loss, int, tuple[int, int]], Tensor]


def _passes(plan: RunPlan, net: LanguageModel, passes: int, gradient: Gradient) -> Array:
    batches = plan.training_batches()
    state, found = net.initial_state(plan.experiment.data.batch), []
    shape = (len(net.slots), len(net.slots[0].labels))
    for index in range(FIRST + passes):
        after: list[StreamState] = []
        loss = _loss(net, batches.batch(index), state, after)
        found.append(gradient(loss, index, shape)[:, 0].double().numpy())
        state = after[0]
    return np.array(found[FIRST:])


def _loss(net: LanguageModel, batch: Batch, state: StreamState, after: list[StreamState]) -> Loss:
    """What a mix costs on a batch; `after` gets what the streams then carry."""

    def loss(mix: Mix) -> Tensor:
        h_BTD, carried, _ = net(batch.input_BT, state, mix)
        after.append(carried)
        return net.nll(h_BTD, batch.target_BT).mean()

    return loss


def _by_estimator(name: str, tau: float) -> Gradient:
    def gradient(loss: Loss, index: int, shape: tuple[int, int]) -> Tensor:
        alpha_LC = torch.zeros(shape, requires_grad=True)
        value = loss(ESTIMATORS[name](alpha_LC, gumbel_noise(0, index, *shape), tau))
        (found_LC,) = torch.autograd.grad(value, [alpha_LC], materialize_grads=True)
        return found_LC

    return gradient


@torch.no_grad()
def _by_pairs(loss: Loss, index: int, shape: tuple[int, int]) -> Tensor:
    """(L(k) - L(k')) / 2 times the gradient of log pi(k), k' the layout with no slot in common.

    With two candidates k' is as likely as k, and each is the other's baseline.
    """
    drawn_L = gumbel_noise(0, index, *shape).argmax(1)
    one, other = (
        loss([[(int(k), None)] for k in choice_L])
        for choice_L in (drawn_L, (drawn_L + 1) % shape[1])
    )
    one_hot_LC = torch.nn.functional.one_hot(drawn_L, shape[1])
    return (one - other) / 2 * (one_hot_LC - 1 / shape[1])


if __name__ == "__main__":
    sys.exit(main())
