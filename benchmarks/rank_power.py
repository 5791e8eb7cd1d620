"""What the rank harness says of SuperNets whose worth is known: how often, by how many layouts.

Layouts' true nats are normal; the SuperNet's scores and four trivial predictors have a given tau
with them. Rivals are "apart" (the first has the given tau, the others know nothing) or "alike"
(four versions of the first, as parameters, FLOPs and latency often are).

    nice -n 10 python -m benchmarks.rank_power --trials 400
    python -m benchmarks.rank_power --trials 400 --noise 0.46 0.33 --tau 0.66 --rival 0.26

--noise: deviations of the mean over the trainings, as parts of that of the layouts' true nats.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.ranking import Ranking, ranking
from pipeline import cli

Array = NDArray[np.float64]
Rivals = Literal["apart", "alike"]
RIVALS, ALIKE = 4, 0.97
CASES = ((0.0, 0.0), (0.4, 0.4), (0.66, 0.26), (0.0, 0.4))
HEAD = (
    "| tau of the SuperNet, of the best rival | rivals | noise | layouts "
    "| better | no better | worse | visible |"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--layouts", type=int, nargs="+", default=[12, 20, 40])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0])
    parser.add_argument("--tau", type=float, help="of the SuperNet (default: four cases)")
    parser.add_argument("--rival", type=float, default=0.0)
    given = parser.parse_args(argv)
    cases = CASES if given.tau is None else ((given.tau, given.rival),)
    print(f"{HEAD}\n|---|---|---|---|---|---|---|---|")
    kinds: tuple[Rivals, ...] = ("apart", "alike")
    for tau, rival in cases:
        for kind in kinds:
            for noise in given.noise:
                for layouts in given.layouts:
                    found = trials(given.trials, layouts, tau, rival, kind, noise)
                    print(_row(found, f"{tau}, {rival} | {kind} | {noise} | {layouts}"), flush=True)
    return 0


def trials(
    count: int, layouts: int, tau: float, rival: float, kind: Rivals, noise: float = 0.0
) -> list[Ranking]:
    """What the harness says of so many samples of layouts, with 1000 resamples each."""
    generator = np.random.default_rng([layouts, round(100 * tau), round(100 * rival)])
    return [_trial(generator, layouts, tau, rival, kind, noise) for _ in range(count)]


def _trial(
    generator: np.random.Generator,
    layouts: int,
    tau: float,
    rival: float,
    kind: Rivals,
    noise: float,
) -> Ranking:
    true_N = generator.normal(size=layouts)

    def like(of_N: Array, correlation: float) -> Array:
        return correlation * of_N + math.sqrt(1 - correlation**2) * generator.normal(size=layouts)

    alone_N = true_N + noise * generator.normal(size=layouts)
    first_N = like(true_N, math.sin(math.pi / 2 * rival))
    base_N, correlation = (first_N, ALIKE) if kind == "alike" else (true_N, 0.0)
    rivals = [first_N, *(like(base_N, correlation) for _ in range(RIVALS - 1))]
    return ranking(
        alone_N[None],
        like(true_N, math.sin(math.pi / 2 * tau)),
        {str(place): each for place, each in enumerate(rivals)},
        resamples=1000,
    )


def said(found: Sequence[Ranking]) -> dict[str, float]:
    """Parts of the rankings by their word; whatever their number of layouts."""
    leads = [each.difference for each in found]
    assert all(lead is not None for lead in leads)
    better = sum(lead is not None and (lead.low or 0) > 0 for lead in leads) / len(found)
    worse = sum(lead is not None and (lead.high or 0) < 0 for lead in leads) / len(found)
    return {"better": better, "no better": 1 - better - worse, "worse": worse}


def _row(found: Sequence[Ranking], words: str) -> str:
    parts = " | ".join(f"{100 * part:.1f}%" for part in said(found).values())
    visible = float(np.median([each.visible or math.nan for each in found]))
    return f"| {words} | {parts} | {visible:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
