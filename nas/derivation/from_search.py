"""Layouts from a search: what pi names, and what the SuperNet's weights score best.

Every method but argmax scores whole layouts, each network once, and takes the best. All keep the
request's limits, and raise ValueError where there is no finished search of the same candidates and
slots, where its weights are needed and not there, and where nothing that is considered keeps them.

R searches   L slots   C candidates   N draws
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from tqdm import tqdm

from model import Agreement, Evidence, Network, layout_letters
from nas.derivation import check_method
from nas.derivation.base import Choice, Considered, Derived, Request
from nas.derivation.ranking import Ranked, networks_by_score
from nas.statistics.agreement import agreement
from utils.pi import load_pi, margins
from utils.screen import say
from utils.text import plural

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Searched:
    """What the searches of a request found: the mean alpha of each.

    `averaged` says over which steps, for the method's text; `learned`, whether alpha moved at all.
    """

    alpha_RLC: Array
    averaged: str
    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    learned: bool

    @cached_property
    def log_pi_LC(self) -> Array:
        """Logarithm of pi, of the searches' mean alpha."""
        return log_softmax(self.alpha_RLC.mean(axis=0), axis=-1)

    @property
    def pi_LC(self) -> Array:
        """The probabilities."""
        return np.exp(self.log_pi_LC)

    @property
    def pi_RLC(self) -> Array:
        """The probabilities of each search by itself."""
        return np.exp(log_softmax(self.alpha_RLC, axis=-1))

    def evidence(self, method: str) -> Evidence:
        """Evidence of a choice: pi, its margins, and how far several searches agree."""
        return Evidence(
            method=method,
            pi=tuple(
                {
                    label: round(float(value), 6)
                    for label, value in zip(self.labels, pi_C, strict=True)
                }
                for pi_C in self.pi_LC
            ),
            margins=tuple(round(float(margin), 6) for margin in margins(self.pi_LC)),
            agreement=self.agreement(),
        )

    def agreement(self) -> Agreement | None:
        """How far the searches' likeliest candidates agree; None for one, or where none learned."""
        if len(self.seeds) == 1 or not self.learned:
            return None
        return agreement(self.seeds, self.alpha_RLC.argmax(axis=2))


def read_searches(request: Request, method: str) -> Searched:
    """Average alpha over the last part of the steps of each search.

    ValueError where there is no finished search, or one had other candidates, slots or steps.
    """
    if not request.trajectories:
        raise ValueError(f"{method}: needs a finished search; run search.py first")
    means = [_mean_alpha(request, path) for path in request.trajectories.values()]
    last, steps = means[0][1:]
    seeds = tuple(request.trajectories)
    of = "" if len(seeds) == 1 else f" of {len(seeds)} searches"
    return Searched(
        alpha_RLC=np.stack([alpha_LC for alpha_LC, _, _ in means]),
        averaged=f"the mean alpha of the last {last} of {steps} steps{of}",
        labels=tuple(candidate.label for candidate in request.candidates),
        seeds=seeds,
        learned=request.alpha_learned,
    )


def _mean_alpha(request: Request, path: Path) -> tuple[Array, int, int]:
    """A search's mean alpha, the number of steps that it is taken over, and that of all steps."""
    arrays = load_pi(path)
    labels = [candidate.label for candidate in request.candidates]
    alpha_NLC = arrays["alpha"]
    searched = [str(label) for label in arrays["labels"]]
    if searched != labels or alpha_NLC.shape[1] != request.slots:
        raise ValueError(
            f"{path}: {alpha_NLC.shape[1]} blocks of {searched}, the experiment has "
            f"{request.slots} of {labels}; use the search's own experiment"
        )
    last = math.ceil(request.config.average * len(alpha_NLC))
    return alpha_NLC[-last:].astype(np.float64).mean(axis=0), last, len(alpha_NLC)


_TRIES = 100
# Among so many of the best layouts is one that keeps its budgets when it is measured whole.
MOST_RANKED = 1024


def argmax(request: Request) -> Derived:
    """Average alpha over the last part of the steps and take each slot's largest.

    With limits the layout that keeps them and has the largest product of pi. Refused where alpha
    never moved.
    """
    check_method(request.config.method, alpha_learned=request.alpha_learned)
    searched = read_searches(request, "argmax")
    # Slot by slot: of equal candidates the first one, also where another form of the network ties.
    choice: Choice = tuple(searched.log_pi_LC.argmax(axis=1).tolist())
    choices, words = [choice], request.budget_words
    if request.has_budget or not request.allowed(choice):
        likeliest = islice(_likeliest(request, searched), MOST_RANKED)
        choices = [choice for _, choice in likeliest]
        if not choices:
            raise _no_layout("argmax", request)
        if not request.allowed(choice) and not request.has_budget:
            words = f" with {request.config.least_context} or more blocks that read context,"
    layouts = tuple(request.networks.layout(choice) for choice in choices)
    evidence = searched.evidence(f"argmax{words} of {searched.averaged}")
    return Derived(layout=layouts[0], evidence=evidence, ranked=layouts)


def _likeliest(request: Request, searched: Searched) -> Iterator[Ranked]:
    return networks_by_score(searched.log_pi_LC, request.networks, request.limits)


def _no_layout(method: str, request: Request) -> ValueError:
    return ValueError(f"{method}: no layout is within {request.must_keep}; allow more")


def top_k(request: Request) -> Derived:
    """Score the `derive.top` networks of largest product of pi within the limits; take the best.

    A network is as likely as the likeliest of its layouts, which is the one that is scored.
    Refused where alpha never moved.
    """
    check_method(request.config.method, alpha_learned=request.alpha_learned)
    scores = Scores(request, "top_k", request.config.top)
    for choice in scores.likeliest(request.config.top):
        scores.add(choice)
    return scores.derived("the likeliest by")


def sampled(request: Request) -> Derived:
    """Score the different networks of `derive.samples` draws within the limits; take the best."""
    config = request.config
    scores = Scores(request, "sampled", config.samples)
    generator = np.random.default_rng(config.seed)
    for choice in draws(scores.searched.pi_LC, config.samples, generator):
        if request.allowed(choice):
            scores.add(choice)
    if not scores.considered:
        raise ValueError(
            f"sampled: none of {config.samples} draws is within {request.must_keep}; allow "
            "more, or give more derive.samples, or take derive.method top_k"
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
                if not scores.full and request.allowed(choice):
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
    that breaks a limit at all.

    Differs from the paper: children come by crossing and change together, not by either, and the
    search's pi is where it begins.
    """
    config = request.config
    scores = Scores(request, "evolution", config.population * (config.generations + 1))
    generator = np.random.default_rng(config.seed)
    population = [scores.start()]
    scores.add(population[0])
    pi_LC = scores.searched.pi_LC
    candidates = pi_LC.shape[1]
    uniform_LC = np.full_like(pi_LC, 1 / candidates)
    for index in range(1, config.population):
        drawn = draws(uniform_LC if index % 2 else pi_LC, _TRIES, generator)
        population += scores.add_first_new(drawn)
    for _ in range(config.generations):
        parents = scores.best(max(2, len(population) // 2), population)
        children = list[Choice]()
        for _ in range(config.population):
            tries = (_child(parents, candidates, config.mutation, generator) for _ in range(_TRIES))
            children += scores.add_first_new(tries)
        population = scores.best(config.population, [*population, *children])
    words = f"{config.generations} generations of {config.population}, seed {config.seed}, from"
    return scores.derived(words)


def _child(
    parents: list[Choice], candidates: int, mutation: float, generator: np.random.Generator
) -> Choice:
    pair = generator.integers(len(parents), size=2)
    one_L, two_L = (np.array(parents[k]) for k in pair)
    child_L = np.where(generator.random(len(one_L)) < 0.5, one_L, two_L)
    shift_L = generator.integers(1, candidates, size=len(child_L)) if candidates > 1 else 0
    changed_L = generator.random(len(child_L)) < mutation
    return tuple(np.where(changed_L, (child_L + shift_L) % candidates, child_L).tolist())


def draws(pi_LC: Array, count: int, generator: np.random.Generator) -> list[Choice]:
    """Layouts, each slot an independent draw from its pi; the same one may come twice."""
    # The last end is 1 but for rounding, and above every draw.
    ends_LC = np.cumsum(pi_LC, axis=1)[:, :-1]
    uniform_NL = generator.random((count, len(pi_LC)))
    choice_NL = (uniform_NL[:, :, None] >= ends_LC).sum(axis=2)
    return [tuple(choice_L) for choice_L in choice_NL.tolist()]


@dataclass
class Scores:
    """The networks that a method scored so far, at most `most`.

    `considered` is in the order in which they were scored; of each network the form that came
    first.
    """

    request: Request
    method: str
    most: int
    searched: Searched = field(init=False)
    considered: dict[Choice, Considered] = field(default_factory=dict)
    _networks: set[Network] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.searched = read_searches(self.request, self.method)
        say(f"{self.method}: scores at most {plural(self.most, 'layout')}")
        self._bar = tqdm(total=self.most, desc="layouts scored", disable=None, leave=False)

    @property
    def full(self) -> bool:
        """Whether no further network may be scored."""
        return len(self.considered) >= self.most

    def known(self, choice: Choice) -> bool:
        """Whether a choice's network was scored, by this layout or by another one."""
        return self.request.networks.of(choice) in self._networks

    def add(self, choice: Choice) -> None:
        """Score a layout, unless its network is known."""
        if self.known(choice):
            return
        assert not self.full, self.most
        self._networks.add(self.request.networks.of(choice))
        assert self.request.score is not None
        layout = self.request.networks.layout(choice)
        log_pi = sum(self.searched.log_pi_LC[slot, k] for slot, k in enumerate(choice))
        flops, score = self.request.flops_per_token(layout), self.request.score(layout)
        self.considered[choice] = Considered(layout, float(log_pi), flops, score)
        self._bar.update()

    def add_first_new(self, choices: Iterable[Choice]) -> list[Choice]:
        """Score the first choice that is allowed and not known; no choice where there is none."""
        for choice in choices:
            if not self.known(choice) and self.request.allowed(choice):
                self.add(choice)
                return [choice]
        return []

    def best(self, count: int, among: Iterable[Choice] | None = None) -> list[Choice]:
        """The best ones; of equal ones the one that was scored first."""
        chosen = self.considered if among is None else among
        return sorted(chosen, key=lambda one: self.considered[one].score.nats_per_token)[:count]

    def start(self) -> Choice:
        """The likeliest layout that keeps the limits; where alpha did not learn, the first one."""
        (choice,) = self.likeliest(1)
        return choice

    def likeliest(self, count: int) -> list[Choice]:
        """The likeliest networks that keep the limits, at most `count`, by likeliest layout."""
        ranked = islice(_likeliest(self.request, self.searched), count)
        choices = [choice for _, choice in ranked]
        if not choices:
            raise _no_layout(self.method, self.request)
        return choices

    def derived(self, words: str) -> Derived:
        """The best layout of all; `words` say how the layouts were found."""
        self._bar.close()
        (choice,) = self.best(1)
        best = self.considered[choice]
        count = len(self.considered)
        say(
            f"{self.method}: layouts scored: {count}, best "
            f"{layout_letters(best.layout)}: {best.score.nats_per_token:.4f} nats/token"
        )
        layouts = (self.request.networks.layout(choice) for choice in self.best(MOST_RANKED))
        evidence = self.searched.evidence(
            f"{self.method}: best of {count} by the SuperNet's weights, {words} "
            f"{self.searched.averaged}"
        )
        return Derived(
            layout=best.layout,
            evidence=evidence.model_copy(update={"inherited": best.score.measured()}),
            considered=tuple(self.considered.values()),
            ranked=tuple(layouts),
        )
