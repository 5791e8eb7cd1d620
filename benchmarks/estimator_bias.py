"""Bias and spread of every estimator of alpha's gradient, against the exact one.

Ten random SuperNets of 4 slots with 3 candidates each (our own model, in float64) on 12 fixed
tokens, with a random alpha. The exact gradient is that of the expected loss of a layout drawn from
pi, summed over all 81 layouts. Every estimator answers 20,000 draws of each net at tau 1 and 0.3.

    python -m benchmarks.estimator_bias --json benchmarks/results/estimator_bias.json

B draws of the noise   L slots   C candidates   R streams   T tokens
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from benchmarks.harness import write_result
from model import LanguageModel, Mix, ModelConfig, SoftmaxConfig
from model.state import Segment
from nas.search.estimators import ESTIMATORS, gumbel_noise, relaxed
from pipeline import cli

SLOTS, CANDIDATES, STREAMS, TOKENS, VOCABULARY = 4, 3, 2, 6, 23
TAUS = (1.0, 0.3)
CHUNK = 250


@dataclass(frozen=True)
class Task:
    """A net, the text it is scored on, and where alpha stands."""

    net: LanguageModel
    ids_RT: Tensor
    target_RT: Tensor
    alpha_LC: Tensor


@dataclass(frozen=True)
class Row:
    """One estimator at one tau, over all nets.

    Attributes:
        estimator: its name.
        tau: the temperature.
        cosine: of the mean estimate with the exact gradient; mean over the nets.
        least_cosine: that of the worst net.
        norm: length of the mean estimate over that of the exact gradient; mean over the nets.
        wrong_signs: part of all entries of alpha whose mean estimate has the other sign.
        spread: standard deviation of one draw's estimate over the exact length; mean.
    """

    estimator: str
    tau: float
    cosine: float
    least_cosine: float
    norm: float
    wrong_signs: float
    spread: float


# The weights (B, L, C) and the scale (B, L) of each slot's whole output, for alpha_BLC and noise.
Weights = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor | None]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--nets", type=int, default=10)
    parser.add_argument("--draws", type=int, default=20_000, help="of each net")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    tasks = [make_task(seed) for seed in range(arguments.nets)]
    exact = [exact_gradient(task) for task in tasks]
    rows = []
    print("| estimator | tau | cosine | least | norm | wrong signs | spread |")
    print("|---|---|---|---|---|---|---|")
    for (name, weights), tau in product(sides().items(), TAUS):
        found = [
            estimates(task, weights, tau, arguments.draws, seed) for seed, task in enumerate(tasks)
        ]
        rows.append(summary(name, tau, found, exact))
        print(line(rows[-1]), flush=True)
    settings = {"nets": arguments.nets, "draws_of_each": arguments.draws}
    write_result(
        arguments.json, "estimator_bias", {**settings, "rows": [asdict(row) for row in rows]}
    )
    return 0


def make_task(seed: int) -> Task:
    """A random net whose weights are large enough that every part matters."""
    torch.manual_seed(seed)
    config = ModelConfig(n_blocks=SLOTS, d_model=8, n_heads=2, d_ffn=16, memory=TOKENS, dropout=0.0)
    net = LanguageModel(
        [config.completed_candidates()] * SLOTS,
        d_model=config.d_model,
        vocabulary_size=VOCABULARY,
        softmax=SoftmaxConfig(),
    ).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ids = torch.randint(VOCABULARY, (2, STREAMS, TOKENS))
    alpha_LC = 0.5 * torch.randn(SLOTS, CANDIDATES, dtype=torch.float64)
    return Task(net, ids[0], ids[1], alpha_LC)


def losses(task: Task, weight_BLC: Tensor, scale_BL: Tensor | None = None) -> Tensor:
    """The loss under each of B mixes, all at once: loss_B.

    The slot adds its candidates' deltas with weights that differ from row to row, which the model
    itself does not offer; `scale_BL` multiplies a slot's whole output, the wrong form.
    """
    count, net = len(weight_BLC), task.net
    ids_NT, target_NT = task.ids_RT.repeat(count, 1), task.target_RT.repeat(count, 1)
    state = net.initial_state(len(ids_NT))
    segment = Segment(state.seen_B, TOKENS)
    x_NTD = net.tables.embed(ids_NT)
    for index, slot in enumerate(net.slots):
        out_NTD = x_NTD
        for k in range(CANDIDATES):
            inputs = (x_NTD, state.memory[index], segment, state.blocks[index], [(k, None)])
            delta_NTD = slot(*inputs)[0] - x_NTD
            out_NTD = out_NTD + _by_row(weight_BLC[:, index, k]) * delta_NTD
        x_NTD = out_NTD if scale_BL is None else _by_row(scale_BL[:, index]) * out_NTD
    loss_N = net.nll(net.norm(x_NTD), target_NT).reshape(len(ids_NT), -1).mean(1)
    return loss_N.reshape(count, STREAMS).mean(1)


def _by_row(value_B: Tensor) -> Tensor:
    return value_B.repeat_interleave(STREAMS)[:, None, None]


def exact_gradient(task: Task) -> Tensor:
    """The gradient in alpha of the mean loss of layouts drawn from pi, by going through all."""
    layouts_BL = torch.tensor(list(product(range(CANDIDATES), repeat=SLOTS)))
    with torch.no_grad():
        loss_B = losses(task, one_hot(layouts_BL, CANDIDATES).double())
    alpha_LC = task.alpha_LC.clone().requires_grad_()
    log_pi_LC = torch.log_softmax(alpha_LC, -1)
    chance_B = log_pi_LC[torch.arange(SLOTS), layouts_BL].sum(-1).exp()
    (gradient_LC,) = torch.autograd.grad((chance_B * loss_B).sum(), [alpha_LC])
    return gradient_LC


def estimates(task: Task, weights: Weights, tau: float, draws: int, seed: int) -> Tensor:
    """The gradient that each draw gives: gradient_BLC."""
    found = []
    for first in range(0, draws, CHUNK):
        count = min(CHUNK, draws - first)
        noise_RC = gumbel_noise(seed, first, count * SLOTS, CANDIDATES).double()
        alpha_BLC = task.alpha_LC.repeat(count, 1, 1).requires_grad_()
        weight_BLC, scale_BL = weights(alpha_BLC, noise_RC.reshape(count, SLOTS, -1), tau)
        loss = losses(task, weight_BLC, scale_BL).sum()
        found.append(torch.autograd.grad(loss, [alpha_BLC])[0])
    return torch.cat(found)


def sides() -> dict[str, Weights]:
    """What is measured: all estimators that give alpha a gradient, and forms that are not ours."""
    ours = {name: of_estimator(name) for name in ESTIMATORS if name != "spos"}
    return {
        **ours,
        "two_path with pi's own weights": two_path_of_pi,
        "wrong: single_path on the whole output": whole_output,
    }


def of_estimator(name: str) -> Weights:
    """The weights of a registered estimator; rows of slots are independent, so all go at once."""

    def weights(alpha_BLC: Tensor, noise_BLC: Tensor, tau: float) -> tuple[Tensor, None]:
        mix = ESTIMATORS[name](alpha_BLC.flatten(0, 1), noise_BLC.flatten(0, 1), tau)
        return dense(mix).reshape(alpha_BLC.shape), None

    return weights


def dense(mix: Mix) -> Tensor:
    """The weights of a mix as one tensor, 0 where nothing is computed."""
    terms = [(row, k, weight) for row, pairs in enumerate(mix) for k, weight in pairs]
    weight_N = torch.stack([torch.ones(()) if weight is None else weight for _, _, weight in terms])
    places = (torch.tensor([row for row, _, _ in terms]), torch.tensor([k for _, k, _ in terms]))
    empty = torch.zeros(len(mix), CANDIDATES, dtype=weight_N.dtype)
    return empty.index_put(places, weight_N)


def two_path_of_pi(alpha_BLC: Tensor, noise_BLC: Tensor, tau: float) -> tuple[Tensor, None]:
    """two_path whose gradient goes through pi renormalised over the two, as in ProxylessNAS."""
    pair_BLP = (alpha_BLC + noise_BLC).detach().topk(2, dim=-1).indices
    pi_BLP = torch.softmax(alpha_BLC.gather(-1, pair_BLP), -1)
    weight_BLP = pi_BLP - pi_BLP.detach() + torch.tensor([1.0, 0.0])
    return torch.zeros_like(alpha_BLC).scatter(-1, pair_BLP, weight_BLP), None


def whole_output(alpha_BLC: Tensor, noise_BLC: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """GDAS's multiplier on the slot's whole output x + f_k instead of its delta."""
    y_BLC = relaxed(alpha_BLC, noise_BLC, tau)
    drawn_BLC = one_hot(y_BLC.argmax(-1), CANDIDATES).double()
    y_BL = (y_BLC * drawn_BLC).sum(-1)
    return drawn_BLC, 1 + y_BL - y_BL.detach()


def summary(name: str, tau: float, found: Sequence[Tensor], exact: Sequence[Tensor]) -> Row:
    """The figures of one estimator at one tau."""
    figures = np.array([list(_figures(*pair)) for pair in zip(found, exact, strict=True)])
    cosine, norm, wrong, spread = figures.mean(0).tolist()
    return Row(name, tau, cosine, float(figures[:, 0].min()), norm, wrong, spread)


def _figures(found_BLC: Tensor, exact_LC: Tensor) -> Iterator[float]:
    mean_LC, length = found_BLC.mean(0), exact_LC.norm()
    yield float((mean_LC * exact_LC).sum() / (mean_LC.norm() * length))
    yield float(mean_LC.norm() / length)
    yield float((mean_LC.sign() != exact_LC.sign()).double().mean())
    yield float(found_BLC.var(0).sum().sqrt() / length)


def line(row: Row) -> str:
    """A line of the table in docs/estimators.md."""
    return (
        f"| {row.estimator} | {row.tau:g} | {row.cosine:.2f} | {row.least_cosine:.2f} | "
        f"{row.norm:.2f} | {row.wrong_signs:.0%} | {row.spread:.1f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
