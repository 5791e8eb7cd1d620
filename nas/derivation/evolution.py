"""Evolution of layouts by the SuperNet's weights (as in Guo et al. 2020, SPOS, 1904.00420)."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from nas.derivation.base import Choice, Derived, Request
from nas.derivation.pi import draw_from
from nas.derivation.scored import Scores
from nas.derivation.searched import Array, read_searches

_TRIES = 100


def evolution(request: Request) -> Derived:
    """Cross and change the better half of a population, generation by generation; take the best.

    The first generation is the likeliest layout, draws from pi, and as many uniform draws. A child
    takes each slot from one of two parents of the better half, and changes it with probability
    `derive.mutation`. The best of parents and children live on. No network is scored twice, none
    that costs more than `derive.flops` at all.

    Differs from the paper: children come by crossing and change together, not by either, and the
    search's pi is where it begins.

    Raises:
        ValueError: there is no finished search, its weights are not there, or no layout costs at
            most derive.flops.
    """
    config = request.config
    searched = read_searches(request, "evolution")
    most = config.population * (config.generations + 1)
    scores = Scores(request, searched, most, "evolution")
    breeder = _Breeder(scores, np.random.default_rng(config.seed), config.mutation)
    population = breeder.first(searched.pi_LC, config.population)
    for _ in range(config.generations):
        parents = scores.best(max(2, len(population) // 2), population)
        children = breeder.children(parents, config.population)
        population = scores.best(config.population, [*population, *children])
    words = f"{config.generations} generations of {config.population}, seed {config.seed}, from"
    return scores.derived(words)


@dataclass(frozen=True)
class _Breeder:
    scores: Scores
    generator: np.random.Generator
    mutation: float

    def first(self, pi_LC: Array, count: int) -> list[Choice]:
        """The likeliest layout, then draws from pi and from all layouts in turn."""
        uniform_LC = np.full_like(pi_LC, 1 / pi_LC.shape[1])
        start = self.scores.start()
        self.scores.add(start)
        found = [start]
        for index in range(1, count):
            drawn = draw_from(uniform_LC if index % 2 else pi_LC, _TRIES, self.generator)
            found += self._first_new(drawn)
        return found

    def children(self, parents: list[Choice], count: int) -> list[Choice]:
        """New networks, as far as there are any."""
        found: list[Choice] = []
        for _ in range(count):
            found += self._first_new(self._child(parents) for _ in range(_TRIES))
        return found

    def _first_new(self, choices: Iterable[Choice]) -> list[Choice]:
        for choice in choices:
            if not self.scores.known(choice) and self.scores.allowed(choice):
                self.scores.add(choice)
                return [choice]
        return []

    def _child(self, parents: list[Choice]) -> Choice:
        candidates = len(self.scores.request.candidates)
        pair = self.generator.integers(len(parents), size=2)
        one_L, two_L = (np.array(parents[k]) for k in pair)
        child_L = np.where(self.generator.random(len(one_L)) < 0.5, one_L, two_L)
        shift_L = self.generator.integers(1, candidates, size=len(child_L)) if candidates > 1 else 0
        changed_L = self.generator.random(len(child_L)) < self.mutation
        return tuple(np.where(changed_L, (child_L + shift_L) % candidates, child_L).tolist())
