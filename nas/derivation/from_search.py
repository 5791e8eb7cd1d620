"""Layouts from a search: what pi names, and what the SuperNet's weights score best.

Every method but argmax scores whole layouts, each network once, and takes the best. All raise
ValueError where there is no finished search of the same candidates and slots, where its weights are
needed and not there, and where nothing that is considered costs at most derive.flops.

L slots   C candidates   K layouts   N draws
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from model import Measured, Network, layout_letters
from nas.derivation.base import Choice, Considered, Derived, Request
from nas.derivation.searched import Array, Searched, check_method, read_searches

# log pi is taken in multiples of this: their sums are exact, so that layouts are equal where they
# should be and not as rounding has it.
STEP = 2.0**-32
_LOOKED_AT = 100_000
_TRIES = 100


def argmax(request: Request) -> Derived:
    """Average alpha over the last part of the steps and take each slot's largest.

    Refused where alpha never moved, or with a budget, which argmax cannot keep.
    """
    check_method(request.config, alpha_learned=request.alpha_learned)
    searched = read_searches(request, "argmax")
    return Derived(
        layout=tuple(request.candidates[k] for k in searched.log_pi_LC.argmax(axis=1)),
        evidence=searched.evidence(f"argmax of {searched.averaged}"),
    )


def top_k(request: Request) -> Derived:
    """Score the `derive.top` networks of largest product of pi within derive.flops; take the best.

    A network is as likely as the likeliest of its layouts, which is the one that is scored.
    Refused where alpha never moved.
    """
    check_method(request.config, alpha_learned=request.alpha_learned)
    scores = Scores(request, "top_k", request.config.top)
    layouts = scores.within_budget(request.config.top)
    if not layouts:
        raise ValueError(
            f"top_k: none of the likeliest layouts (up to {_LOOKED_AT:,}) costs at most "
            f"derive.flops {request.config.flops:.4g}; give a larger one"
        )
    for choice in layouts:
        scores.add(choice)
    return scores.derived("the likeliest by")


def sampled(request: Request) -> Derived:
    """Score the different networks of `derive.samples` draws within derive.flops; take the best."""
    config = request.config
    scores = Scores(request, "sampled", config.samples)
    generator = np.random.default_rng(config.seed)
    for choice in draws(scores.searched.pi_LC, config.samples, generator):
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


def likeliest(log_pi_LC: Array, count: int) -> list[tuple[float, Choice]]:
    """The `count` layouts of largest product of pi, by a dynamic programme over the slots.

    Slots are independent, so a layout among the best has a beginning among the best beginnings of
    its length: of each length `count` are kept, which takes O(L K C log(K C)). All C^L layouts
    are never looked at. Sums of log pi are exact but for its rounding to multiples of STEP.

    Returns:
        log pi, which never rises, and the candidates' indices. Of equal layouts those come first
        whose first difference is the lower index.
    """
    sums_K, choice_KL = np.zeros(1), np.zeros((1, 0), dtype=np.int64)
    for log_pi_C in np.round(log_pi_LC / STEP) * STEP:
        sums_KC = sums_K[:, None] + log_pi_C
        # The rows are kept in the order of their indices, which a stable sort takes for ties.
        best_K = np.sort(np.argsort(-sums_KC, axis=None, kind="stable")[:count])
        rows_K, candidate_K = np.divmod(best_K, len(log_pi_C))
        sums_K = sums_KC.ravel()[best_K]
        choice_KL = np.concatenate([choice_KL[rows_K], candidate_K[:, None]], axis=1)
    order_K = np.argsort(-sums_K, kind="stable")
    return [
        (float(total), tuple(choice_L))
        for total, choice_L in zip(sums_K[order_K], choice_KL[order_K].tolist(), strict=True)
    ]


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
        self.request.say(f"{self.method}: at most {self.most} layouts are scored")

    @property
    def full(self) -> bool:
        """Whether no further network may be scored."""
        return len(self.considered) >= self.most

    def known(self, choice: Choice) -> bool:
        """Whether a choice's network was scored, by this layout or by another one."""
        return self.request.networks.of(choice) in self._networks

    def flops(self, choice: Choice) -> float:
        """Forward FLOPs per token."""
        return self.request.flops_per_token(self.request.networks.layout(choice))

    def allowed(self, choice: Choice) -> bool:
        """Whether a choice costs no more than derive.flops."""
        budget = self.request.config.flops
        return budget is None or self.flops(choice) <= budget

    def add(self, choice: Choice) -> None:
        """Score a layout, unless its network is known."""
        if self.known(choice):
            return
        assert not self.full, self.most
        self._networks.add(self.request.networks.of(choice))
        assert self.request.score is not None
        layout = self.request.networks.layout(choice)
        log_pi = 0.0
        for k, log_pi_C in zip(choice, self.searched.log_pi_LC, strict=True):
            log_pi += float(log_pi_C[k])
        score = self.request.score(layout)
        self.considered[choice] = Considered(layout, log_pi, self.flops(choice), score)

    def add_first_new(self, choices: Iterable[Choice]) -> list[Choice]:
        """Score the first choice that is allowed and not known; no choice where there is none."""
        for choice in choices:
            if not self.known(choice) and self.allowed(choice):
                self.add(choice)
                return [choice]
        return []

    def best(self, count: int, among: Sequence[Choice] | None = None) -> list[Choice]:
        """The best ones; of equal ones the one that was scored first."""
        chosen = list(self.considered) if among is None else list(among)
        chosen.sort(key=lambda choice: self.considered[choice].score.nats_per_token)
        return chosen[:count]

    def start(self) -> Choice:
        """The likeliest layout that costs no more than derive.flops, or else the cheapest.

        Where alpha did not learn all layouts are equally likely, and the first 100,000 alike.
        """
        if likeliest_allowed := self.within_budget(1):
            return likeliest_allowed[0]
        alike = [(k,) * self.request.slots for k in range(len(self.request.candidates))]
        cheapest = min(alike, key=self.flops)
        if self.allowed(cheapest):
            return cheapest
        raise ValueError(
            f"{self.method}: the cheapest layout costs {self.flops(cheapest):.4g} FLOPs "
            f"per token, derive.flops is {self.request.config.flops:.4g}; give a larger one"
        )

    def within_budget(self, count: int) -> list[Choice]:
        """The likeliest networks that derive.flops allows, at most `count`, by likeliest layout."""
        looked_at = min(count, _LOOKED_AT)
        while True:
            layouts = likeliest(self.searched.log_pi_LC, looked_at)
            allowed = (choice for _, choice in layouts if self.allowed(choice))
            networks = [*islice(self.request.networks.first_forms(allowed), count)]
            if len(networks) == count or len(layouts) < looked_at or looked_at == _LOOKED_AT:
                return networks
            looked_at = min(10 * looked_at, _LOOKED_AT)

    def derived(self, words: str) -> Derived:
        """The best layout of all; `words` say how the layouts were found."""
        (choice,) = self.best(1)
        best = self.considered[choice]
        count = len(self.considered)
        self.request.say(
            f"{self.method}: {count} layouts scored, best {best.score.nats_per_token:.4f} nats: "
            f"{layout_letters(best.layout)}"
        )
        evidence = self.searched.evidence(
            f"{self.method}: best of {count} by the SuperNet's weights, {words} "
            f"{self.searched.averaged}"
        )
        measured = Measured(
            nats_per_token=round(best.score.nats_per_token, 6),
            standard_error=round(best.score.standard_error, 6),
        )
        return Derived(
            layout=best.layout,
            evidence=evidence.model_copy(update={"inherited": measured}),
            considered=tuple(self.considered.values()),
        )
