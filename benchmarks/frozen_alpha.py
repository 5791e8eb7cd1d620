r"""Which blocks of a trained model to drop: does alpha alone choose as greedy scoring does?

The weights stand still. Alpha over (block, nothing) of each place learns by the KL from the parent
under an estimator of the search, with its bound on the expected cost; of the maximal subsets within
the budget the likeliest by alpha counts, or the nearest of the `finalists` likeliest. Against it
the greedy walk of `derive.method: shrink` with as many forward passes, the rules of dropping, and
with `--all` the nearest of all subsets. A pass reads the calibration text once; a backward pass
counts as `--backward` forward ones. Costs are forward FLOPs of the blocks, or `--costs`.

    python -m benchmarks.frozen_alpha EXPERIMENT --model FOLDER --run runs/alpha --passes 30 60 \
        --seeds 0 1 2 --alpha estimator=soft --alpha estimator=two_path,lr=0.1

B streams   T segment   L places   C options of a place, its block and nothing
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import write_result
from data.batching import ContextBatches
from model import Mix, layout_letters, load_architecture
from model.distillation import mean_kl
from model.saving import load_given
from model.state import StreamState
from nas import dropping
from nas.baselines import DROPS
from nas.costs.budget import LayoutCost, Limit
from nas.derivation.base import Choice, Request
from nas.derivation.shrink import Greedy, Parent, maximal_subsets
from nas.derivation.sub_networks import SubNetworks
from nas.dropping import Dropping
from nas.search.config import TauConfig
from nas.search.constraint import Constraint, constrain, multipliers
from nas.search.estimators import ESTIMATORS, gumbel_noise
from nas.search.tau import tau_at
from pipeline import cli
from pipeline.derive import request_of
from pipeline.experiment import load_experiment
from pipeline.plan import RunPlan, set_up
from pipeline.sub_networks import parent_of, sub_networks
from training.optim import decay, set_learning_rate
from utils.kept import Kept
from utils.screen import say

Row = dict[str, Any]
# Alpha's mean over so much of the end of its steps counts.
MEAN_OF = 0.2


@dataclass(frozen=True)
class Setting:
    """How alpha learns; the defaults are the search's, but that draws are not held.

    Attributes:
        start: alpha of each block at first, that of nothing is 0.
        target: expected cost as a part of the budget, above which the multiplier rises by `rate`.
        finalists: so many of the likeliest subsets are scored, which takes passes; 1: none.
    """

    estimator: str = "soft"
    tau_start: float = 1.0
    tau_end: float = 0.3
    lr: float = 0.05
    eps: float = 2e-3
    start: float = 0.0
    target: float = 1.0
    rate: float = 0.05
    hold: int = 1
    finalists: int = 1

    @classmethod
    def parse(cls, text: str) -> "Setting":
        """From NAME=VALUE,NAME=VALUE; ValueError where a name is none."""
        given = dict(part.split("=", 1) for part in text.split(",") if part)
        types: dict[str, Callable[[str], Any]]
        types = {name: type(default) for name, default in asdict(cls()).items()}
        if unknown := given.keys() - types.keys():
            raise ValueError(f"--alpha: {', '.join(unknown)}: no setting; give {', '.join(types)}")
        return cls(**{name: types[name](value) for name, value in given.items()})


@dataclass(frozen=True)
class PlaceConstraint(Constraint):
    """A bound on the expected cost where what a block costs differs from place to place."""

    value_LC: tuple[tuple[float, float], ...] = ()

    def _value_C(self, like: Tensor) -> Tensor:
        return torch.tensor(self.value_LC, dtype=like.dtype)


@dataclass
class FrozenNet:
    """The parent's network with nothing as an option of every place; only alpha is trained."""

    scores: SubNetworks
    taught: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scores.net.requires_grad_(False)
        state, whole = self.initial_state, [[(0, None)] for _ in self.scores.options]
        for batch in self.scores.batches:
            h_BTD, state, _ = self.scores.net(batch.input_BT, state, whole)
            self.taught.append(h_BTD)

    @property
    def initial_state(self) -> StreamState:
        """Of streams that have seen nothing."""
        return self.scores.net.initial_state(len(self.scores.batches[0].input_BT))

    def kl(self, mix: Mix, segment: int, state: StreamState) -> tuple[Tensor, StreamState]:
        """KL(parent || mixture) per token of a segment, and the state after it."""
        net = self.scores.net
        h_BTD, state, _ = net(self.scores.batches[segment].input_BT, state, mix)
        return mean_kl(net.softmax, h_BTD, net.softmax, self.taught[segment]), state

    def train(self, how: Setting, bound: Constraint, steps: int, seed: int) -> tuple[Tensor, Row]:
        """Alpha's mean over the last steps, and what became of its bound.

        Every step reads one segment, with the memory that the mixtures before it made.
        """
        alpha_LC = torch.tensor([[how.start, 0.0]] * len(self.scores.options), requires_grad=True)
        adam = torch.optim.Adam([alpha_LC], betas=(0.5, 0.999), eps=how.eps)
        tau = TauConfig(start=how.tau_start, end=how.tau_end)
        multiplier, total_LC, state = multipliers([bound]), torch.zeros_like(alpha_LC), None
        averaged = max(1, round(MEAN_OF * steps))
        for step in range(steps):
            segment = step % len(self.taught)
            state = self.initial_state if state is None or not segment else state
            noise_LC = gumbel_noise(seed, step // how.hold, *alpha_LC.shape)
            now = tau_at(tau, step, alpha_start=0, steps=steps)
            mix = ESTIMATORS[how.estimator](alpha_LC, noise_LC, now)
            loss, state = self.kl(mix, segment, state)
            # Where every place drew nothing there is no gradient.
            alpha_LC.grad = constrain(alpha_LC.detach(), [bound], multiplier)
            if loss.requires_grad:
                alpha_LC.grad += torch.autograd.grad(loss, alpha_LC)[0]
            set_learning_rate(adam, how.lr * decay("cosine", step / max(steps - 1, 1), 0.0))
            adam.step()
            if step >= steps - averaged:
                total_LC += alpha_LC.detach()
        mean_LC = total_LC / averaged
        return mean_LC, {"cost": bound.ratio(mean_LC), "multiplier": float(multiplier["cost"])}


@dataclass(frozen=True)
class Contest:
    """One parent within one budget: its scores on the calibration text and on validation text."""

    request: Request
    parent: Parent
    scores: SubNetworks
    held_out: SubNetworks
    subsets: Sequence[Choice]

    def row(self, way: str, choices: Sequence[Choice], passes: int, began_s: float) -> Row:
        """The nearest of the choices by calibration, on both texts; `seconds` of what was new."""
        seconds, near = time.monotonic() - began_s, self.scores.distances(choices)
        best = min(choices, key=lambda one: (near[one].kl_nats, one))
        row: Row = {"way": way, "subset": layout_letters(self.request.networks.layout(best))}
        for text, of in (("calibration", self.scores), ("held_out", self.held_out)):
            found = of.distances([best])[best]
            row |= {f"{text}_kl": found.kl_nats, f"{text}_nats": found.nats.nats_per_token}
        return row | {"passes": passes, "seconds": round(seconds, 1)}

    def others(self, most: Sequence[int]) -> Iterator[Row]:
        """The greedy walk, with so many passes and to its end, and the rules."""
        for limit in (*most, 100_000):
            began_s, walk = time.monotonic(), Greedy(self.request, self.parent, limit)
            if found := walk.subsets():
                yield self.row(f"greedy, at most {limit}", found, len(walk.kl), began_s)
        no_budget = replace(self.request, limits=self.request.limits[:-1])
        for name in DROPS:
            began_s, wanted = time.monotonic(), 8 if name == "drop_random" else 1
            rule = Dropping(self.parent, self.request.allowed, no_budget.allowed, wanted)
            passes = {"drop_prices": len(self.parent.options), "drop_cosine": 1}.get(name, 0)
            for choice in getattr(dropping, name)(rule):
                yield self.row(name, [choice], passes, began_s)

    def alpha(
        self, net: FrozenNet, how: Setting, passes: int, backward: float, seed: int
    ) -> tuple[Row, Tensor]:
        """The subset that alpha chooses; the parent's own predictions take a pass of both ways."""
        began_s, finalists = time.monotonic(), how.finalists if how.finalists > 1 else 0
        steps = int((passes - 1 - finalists) * len(net.taught) / (1.0 + backward))
        limit = self.request.limits[-1]
        labels, by_label = self.request.candidates, limit.cost.by_label
        value_LC = tuple((by_label[labels[of[0]].label], 0.0) for of in self.parent.options)
        bound = PlaceConstraint("cost", (), 0.0, how.target * limit.most, how.rate, value_LC)
        alpha_LC, more = net.train(how, bound, steps, seed)
        chosen = likeliest(alpha_LC, self.parent, self.subsets)[: max(1, finalists)]
        row = self.row("alpha", chosen, passes, began_s)
        return row | {"backward": backward, "seed": seed, "steps": steps, **more}, alpha_LC


def likeliest(alpha_LC: Tensor, parent: Parent, subsets: Sequence[Choice]) -> list[Choice]:
    """The subsets by their probability under pi, the likeliest first."""
    log_pi_LC = torch.log_softmax(alpha_LC.double(), -1).tolist()

    def log_pi(choice: Choice) -> float:
        places = zip(log_pi_LC, parent.options, choice, strict=True)
        return sum(of_C[options.index(k)] for of_C, options, k in places)

    return sorted(subsets, key=lambda one: (-log_pi(one), one))


def contest(plan: RunPlan, share: float, costs: dict[str, float]) -> Contest:
    """The parent of a plan within a part of its blocks' cost; ValueError where it cannot shrink."""
    folder = plan.experiment.retrain.models()["start"]
    layout, parent = parent_of(plan)
    given = load_given({"start": folder}, load_architecture(folder / "architecture.json"), [])
    scores = sub_networks(plan, given["start"], parent.options)
    data, count = plan.experiment.data, len(scores.batches)
    text = ContextBatches(plan.prepared.tokens["valid"], batch=data.batch, segment=data.segment)
    held_out = replace(
        scores,
        batches=[text.batch(number) for number in range(min(count, text.per_epoch))],
        kept=Kept(plan.run_dir / "held_out.jsonl", scores.kept.key),
    )
    cost = LayoutCost("blocks", costs or plan.costs.by_label)
    request = request_of(plan, plan.experiment.derive, [])
    limits = (*request.limits, Limit(cost, share * cost(layout)))
    request = replace(request, limits=limits)
    parent = Parent(parent.options, scores.distances, scores.cosines)
    subsets = maximal_subsets(request, parent)
    assert subsets, "so few places can be listed"
    return Contest(request, parent, scores, held_out, subsets)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="folder of the parent")
    parser.add_argument("--run", type=Path, required=True, help="where scores are kept")
    parser.add_argument("--set", action="append", default=[], help="override one key")
    parser.add_argument("--share", type=float, default=0.65, help="budget, of the blocks' cost")
    parser.add_argument("--costs", default="", help="of blocks: attention=1.396,dense=0.598")
    parser.add_argument("--passes", type=int, nargs="*", default=[60])
    parser.add_argument("--backward", type=float, nargs="+", default=[2.0, 0.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of alpha's noise")
    parser.add_argument("--alpha", action="append", type=Setting.parse, help="a setting, or more")
    parser.add_argument("--all", action="store_true", help="score every maximal subset too")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    texts = [*given.set, "run.threads=1", "run.device=cpu", f"retrain.start={given.model}"]
    pairs = (part.split("=") for part in given.costs.split(",") if part)
    costs = {name: float(value) for name, value in pairs}
    plan = set_up(load_experiment(given.experiment, texts), given.run)
    asked = contest(plan, given.share, {**costs, "identity": 0.0} if costs else {})
    rows, net = list[Row](), FrozenNet(asked.scores)
    found = {"share": given.share, "costs": costs, "subsets": len(asked.subsets), "rows": rows}

    def add(row: Row) -> None:
        rows.append(row)
        write_result(given.json, "frozen_alpha", found)
        say(f"{row['way']}: {row['subset']}  {row['held_out_kl']:.4f}  {row['passes']} passes")

    for row in asked.others(given.passes):
        add(row)
    ways = product(given.alpha or [Setting()], given.passes, given.backward, given.seeds)
    for how, passes, backward, seed in ways:
        row, alpha_LC = asked.alpha(net, how, passes, backward, seed)
        add(row | {"setting": asdict(how), "alpha": alpha_LC[:, 0].tolist()})
    if given.all:
        add(asked.row("nearest of all", asked.subsets, len(asked.subsets), time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
