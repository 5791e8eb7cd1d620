"""Layouts from a search: what pi names, and what the SuperNet's weights score best.

Every method but argmax scores whole layouts, each network once, and takes the best. All raise
ValueError where there is no finished search of the same candidates and slots, where its weights are
needed and not there, and where nothing that is considered costs at most derive.flops.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from nas.derivation.base import Choice, Derived, Request
from nas.derivation.scored import Scores
from nas.derivation.searched import Array, check_learned, read_searches

_TRIES = 100


def argmax(request: Request) -> Derived:
    """Average alpha over the last part of the steps and take each slot's largest.

    Refused where alpha never moved, or with a budget, which argmax cannot keep.
    """
    check_learned(request, "argmax")
    if request.config.flops is not None:
        raise ValueError(
            f"argmax: cannot keep derive.flops {request.config.flops:.4g}, for it takes each slot "
            "by itself; take derive.method top_k (or sampled, beam, evolution), or leave "
            "derive.flops out"
        )
    searched = read_searches(request, "argmax")
    return Derived(
        layout=tuple(request.candidates[k] for k in searched.log_pi_LC.argmax(axis=1)),
        evidence=searched.evidence(f"argmax of {searched.words}"),
    )


def top_k(request: Request) -> Derived:
    """Score the `derive.top` networks of largest product of pi within derive.flops; take the best.

    A network is as likely as the likeliest of its layouts, which is the one that is scored.
    Refused where alpha never moved.
    """
    check_learned(request, "top_k")
    scores = Scores(request, "top_k", request.config.top)
    for choice in scores.likeliest(request.config.top):
        scores.add(choice)
    return scores.derived("the likeliest by")


def sampled(request: Request) -> Derived:
    """Score the different networks of `derive.samples` draws within derive.flops; take the best."""
    config = request.config
    scores = Scores(request, "sampled", config.samples)
    for choice in draws(scores.searched.pi_LC, config.samples, config.seed):
        if scores.allowed(choice):
            scores.add(choice)
    if not scores.considered:
        raise ValueError(
            f"sampled: none of {config.samples} draws costs at most derive.flops "
            f"{config.flops:.4g}; give a larger one, or more derive.samples"
        )
    return scores.derived(f"{config.samples} draws of seed {config.seed} from pi of")


def beam(request: Request) -> Derived:
    """From the likeliest layout on, score what differs from the best ones in one slot.

    In every round all neighbours of the `derive.width` best networks so far are scored, until no
    round finds a new one or `derive.evaluations` are used up. Neighbours differ in one slot from
    the layout, or from the same network with its first idle slot elsewhere. Every layout that is
    scored is a whole one, so scores are comparable (a beam over the slots in order would have to
    score beginnings of layouts). Nothing is drawn.
    """
    config = request.config
    scores = Scores(request, "beam", config.evaluations)
    scores.add(scores.start())
    before = 0
    while before < len(scores.considered) and not scores.full:
        before = len(scores.considered)
        for parent in scores.best(config.width):
            for choice in _neighbours(request, parent):
                if not scores.full and scores.allowed(choice):
                    scores.add(choice)
    return scores.derived(f"beam of width {config.width} from")


def _neighbours(request: Request, parent: Choice) -> Iterator[Choice]:
    for form in request.networks.near_forms(parent):
        for slot, now in enumerate(form):
            for k in range(len(request.candidates)):
                if k != now:
                    yield (*form[:slot], k, *form[slot + 1 :])


def evolution(request: Request) -> Derived:
    """Cross and change the better half of a population, generation by generation; take the best.

    The first generation is the likeliest layout, draws from pi, and as many uniform draws. A child
    takes each slot from one of two parents of the better half, and changes it with probability
    `derive.mutation`. The best of parents and children live on. No network is scored twice, none
    that costs more than `derive.flops` at all.

    Differs from the paper: children come by crossing and change together, not by either, and the
    search's pi is where it begins.
    """
    config = request.config
    scores = Scores(request, "evolution", config.population * (config.generations + 1))
    breeder = _Breeder(scores, np.random.default_rng(config.seed), config.mutation)
    population = breeder.first(scores.searched.pi_LC, config.population)
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
        population = [start]
        for index in range(1, count):
            drawn = draw_from(uniform_LC if index % 2 else pi_LC, _TRIES, self.generator)
            population += self._first_new(drawn)
        return population

    def children(self, parents: list[Choice], count: int) -> list[Choice]:
        """New networks, as far as there are any."""
        born = list[Choice]()
        for _ in range(count):
            born += self._first_new(self._child(parents) for _ in range(_TRIES))
        return born

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


def draws(pi_LC: Array, count: int, seed: int) -> list[Choice]:
    """Layouts, each slot an independent draw from its pi; the same one may come twice."""
    return draw_from(pi_LC, count, np.random.default_rng(seed))


def draw_from(pi_LC: Array, count: int, generator: np.random.Generator) -> list[Choice]:
    """As `draws`, from a generator that goes on."""
    # The last end is 1 but for rounding, and above every draw.
    ends_LC = np.cumsum(pi_LC, axis=1)[:, :-1]
    uniform_NL = generator.random((count, len(pi_LC)))
    choice_NL = (uniform_NL[:, :, None] >= ends_LC).sum(axis=2)
    return [tuple(choice_L) for choice_L in choice_NL.tolist()]
