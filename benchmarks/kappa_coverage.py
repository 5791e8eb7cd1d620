"""How often the 95% interval of kappa holds the kappa of the slots' own probabilities.

Every slot has fixed probabilities of its candidates, and each search chooses by them. A row is a
story of these probabilities; a cell the part of the printed intervals that cover, and in brackets
the part of the tables that get one.

    python -m benchmarks.kappa_coverage
"""

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nas.statistics.agreement import interval, shuffled
from pipeline import cli

Array = NDArray[np.float64]
STORIES = ("chance", "chance, uneven", "any", "nearly sure", "90%", "70%", "half sure, half chance")
SLOTS = (6, 12, 32)
_SHUFFLES = 200


def probabilities(story: str, slots: int, candidates: int) -> Array:
    """Those of a story, p_LC."""
    generator = np.random.default_rng(slots)
    chance_LC = np.full((slots, candidates), 1 / candidates)
    sure_LC = np.eye(candidates)[generator.permutation(np.arange(slots) % candidates)]
    uneven_C = 0.5 ** np.arange(candidates)
    half_L1 = (np.arange(slots) < slots // 2)[:, None]
    return {
        "chance": chance_LC,
        "chance, uneven": np.tile(uneven_C / uneven_C.sum(), (slots, 1)),
        "any": generator.dirichlet(np.ones(candidates), slots),
        "nearly sure": generator.dirichlet(np.full(candidates, 0.3), slots),
        "90%": 0.85 * sure_LC + 0.15 * chance_LC,
        "70%": 0.55 * sure_LC + 0.45 * chance_LC,
        "half sure, half chance": np.where(half_L1, sure_LC, chance_LC),
    }[story]


def kappa_of(p_LC: Array) -> float:
    """Kappa of endlessly many searches."""
    by_chance = (p_LC.mean(0) ** 2).sum()
    return float(((p_LC**2).sum(1).mean() - by_chance) / (1 - by_chance))


def coverage(p_LC: Array, searches: int, tables: int, seed: int = 0) -> tuple[float, float]:
    """The part of the intervals that cover, and the part of the tables that get one."""
    generator = np.random.default_rng(seed)
    slots, candidates = p_LC.shape
    wanted, covered, there = kappa_of(p_LC), 0, 0
    ends_LC = p_LC.cumsum(1)[:, :-1]
    for _ in range(tables):
        choice_RL = (generator.random((searches, slots, 1)) >= ends_LC).sum(-1)
        counts_LC = (choice_RL[:, :, None] == np.arange(candidates)).sum(0)
        if counts_LC.sum(0).max() == choice_RL.size:
            continue
        found = interval(counts_LC, float(shuffled(choice_RL, _SHUFFLES).std()))
        if found is not None:
            there += 1
            covered += found[0] <= wanted <= found[1]
    return (covered / there if there else float("nan")), there / tables


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--tables", type=int, default=300, help="of each cell")
    arguments = parser.parse_args(argv)
    print(f"| candidates | searches | story |{'|'.join(f' {slots} slots ' for slots in SLOTS)}|")
    print(f"|---|---|---|{'---|' * len(SLOTS)}")
    for candidates in (2, 3):
        for searches in (2, 3, 5):
            for story in STORIES:
                cells = []
                for slots in SLOTS:
                    p_LC = probabilities(story, slots, candidates)
                    part, there = coverage(p_LC, searches, arguments.tables)
                    cells.append(f"{part:.2f} ({there:.2f})")
                print(f"| {candidates} | {searches} | {story} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
