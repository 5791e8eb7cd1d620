"""How often the guard warns of drift or standstill: directed searches and placebos, simulated.

Alpha alone is simulated, with the search's own schedules, Adam and draws, held as it holds them,
and the soft estimator. The expected loss is
linear: in every slot candidate 0 is better than the others by so many nats per token (a placebo: by
0), and each step's text adds noise to each candidate's loss. `walk` is a gradient of noise alone,
which does not even vanish where pi has settled. One row is a setting of the search and a kind.

    python -m benchmarks.guard_rates
    python -m benchmarks.guard_rates --searches 200 --steps 800
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nas.search.config import SearchConfig
from nas.search.diagnostics import LEAST_MARGIN, Diagnostics, diagnose_search, warnings_of
from nas.search.estimators import gumbel_noise
from nas.search.plan import SearchPlan
from pipeline import cli

Array = NDArray[np.float64]
SLOTS, CANDIDATES = 6, 3
# They say for how many steps a draw stands: the quickstart's.
MEMORY, SEGMENT = 64, 64
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "every 4": {"every": 4},
    "lr 0.05": {"lr": 0.05},
    "lr 0.3": {"lr": 0.3},
    "lr 0.3, constant": {"lr": 0.3, "schedule": "constant"},
    "lr 0.3, constant, every 4": {"lr": 0.3, "schedule": "constant", "every": 4},
    "eps 1e-8": {"eps": 1e-8},
}


@dataclass(frozen=True)
class Kind:
    """What there is to find, in nats per token.

    Attributes:
        name: of the row.
        effect: how much better candidate 0 is.
        noise: deviation of each candidate's loss from step to step.
        walk: whether the gradient is that noise alone.
    """

    name: str
    effect: float
    noise: float
    walk: bool = False


KINDS = (
    Kind("directed, 0.02", 0.02, 0.05),
    Kind("directed, 0.05", 0.05, 0.05),
    Kind("directed, 0.3", 0.3, 0.05),
    Kind("placebo, noise 0.05", 0.0, 0.05),
    Kind("placebo, noise 0.003", 0.0, 0.003),
    Kind("walk, noise 0.05", 0.0, 0.05, walk=True),
    Kind("walk, noise 0.0005", 0.0, 0.0005, walk=True),
)


def simulate(plan: SearchPlan, kind: Kind, searches: int, seed: int) -> tuple[Array, list[float]]:
    """Alpha of so many searches, S slots in all, before alpha's first step and after each.

    Returns:
        alpha_NSC and the learning rate of each step from alpha's first on, 0 where it is not due.
    """
    config = plan.config.alpha
    generator = np.random.default_rng(seed)
    shape = (searches * SLOTS, CANDIDATES)
    effect_C = np.array([-kind.effect, *[0.0] * (CANDIDATES - 1)])
    alpha_SC, mean_SC, square_SC = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    path, rates, moved = [alpha_SC], [], 0
    for step in range(plan.alpha_start, plan.steps):
        rates.append(plan.alpha_lr(step) * plan.alpha_due(step))
        if plan.alpha_due(step):
            moved += 1
            loss_SC = effect_C + kind.noise * generator.standard_normal(shape)
            noise_SC = gumbel_noise(seed, plan.draw(step), *shape).double().numpy()
            gradient_SC = loss_SC if kind.walk else _soft(alpha_SC + noise_SC, loss_SC, plan, step)
            one, two = config.betas
            mean_SC = one * mean_SC + (1 - one) * gradient_SC
            square_SC = two * square_SC + (1 - two) * gradient_SC**2
            scale_SC = np.sqrt(square_SC / (1 - two**moved)) + config.eps
            alpha_SC = alpha_SC - plan.alpha_lr(step) * mean_SC / (1 - one**moved) / scale_SC
        path.append(alpha_SC)
    return np.stack(path), rates


def _soft(logit_SC: Array, loss_SC: Array, plan: SearchPlan, step: int) -> Array:
    """The gradient of the soft estimator: of sum_k w_k loss_k, w = softmax(logit / tau)."""
    tau = plan.tau(step)
    weight_SC = np.exp((logit_SC - logit_SC.max(1, keepdims=True)) / tau)
    weight_SC /= weight_SC.sum(1, keepdims=True)
    gradient_SC: Array = weight_SC * (loss_SC - (weight_SC * loss_SC).sum(1, keepdims=True)) / tau
    return gradient_SC


def watched(
    plan: SearchPlan, kind: Kind, searches: int, seed: int
) -> tuple[list[Diagnostics], float]:
    """What the guard sees of each search, and in which part of the slots candidate 0 leads."""
    path_NSC, rates = simulate(plan, kind, searches, seed)
    labels = [f"candidate {k}" for k in range(CANDIDATES)]
    each = np.split(path_NSC.astype(np.float32), searches, axis=1)
    found = [diagnose_search(path_NLC, rates, labels, [False] * CANDIDATES) for path_NLC in each]
    return found, float((path_NSC[-1].argmax(1) == 0).mean())


def row(setting: str, kind: Kind, searches: int, steps: int) -> str:
    """One line of the table."""
    config = SearchConfig.model_validate({"steps": steps, "alpha": SETTINGS[setting]})
    plan = SearchPlan(config, steps, memory=MEMORY, segment=SEGMENT)
    found, right = watched(plan, kind, searches, seed=0)
    t_S = np.concatenate([each.directed_L for each in found])
    judged = float((~np.isnan(t_S)).mean())
    median = f"{np.nanmedian(t_S):.1f}" if judged else "-"
    still = np.mean([each.mean_margin < LEAST_MARGIN for each in found])
    drift = np.mean([any("as noise would" in line for line in warnings_of(each)) for each in found])
    margin = np.mean([each.mean_margin for each in found])
    return (
        f"| {setting} | {kind.name} | {right:.2f} | {margin:.2f} | {judged:.2f} | {median} "
        f"| {drift:.2f} | {still:.2f} |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--searches", type=int, default=100, help="of each row")
    parser.add_argument("--steps", type=int, default=800, help="of a search")
    arguments = parser.parse_args(argv)
    print("| search | kind | 0 leads | margin | judged | median t | drift | standstill |")
    print("|---|---|---|---|---|---|---|---|")
    for setting in SETTINGS:
        for kind in KINDS:
            print(row(setting, kind, arguments.searches, arguments.steps), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
