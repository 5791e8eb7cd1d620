"""Derivations by the SuperNet's weights, against brute force over all layouts."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model import Layout, Network, layout_letters, network_of
from nas.costs.budget import Limit
from nas.derivation import method_of
from nas.derivation.base import Derived, Request
from nas.derivation.config import DeriveConfig
from nas.derivation.from_search import draws
from nas.statistics.paired_scores import Score
from tests import tiny
from tests.nas.derivation.test_derivation import LABELS, cost, write

CANDIDATES = tiny.candidates(*LABELS)
SLOTS = 5


def table_score(layout: Layout) -> Score:
    """Nats that add up over the blocks, with a twist: two neighbours alike cost more."""
    words = [candidate.label for candidate in layout if candidate.kind != "identity"]
    table = np.random.default_rng(7).uniform(-0.5, 0.5, size=(SLOTS, 3))
    nats = 3 + sum(table[place, LABELS.index(word)] for place, word in enumerate(words))
    nats += 0.2 * sum(one == two for one, two in itertools.pairwise(words))
    return Score(np.array([nats, 3 * nats]) * 10, np.array([10.0, 30.0]))


def every_layout() -> list[Layout]:
    return list(itertools.product(CANDIDATES, repeat=SLOTS))


def every_network() -> set[Network]:
    return {network_of(layout, None) for layout in every_layout()}


def layouts(derived: Derived) -> list[Layout]:
    """What was derived, and what was scored for it, in order."""
    return [derived.layout, *(each.layout for each in derived.considered)]


class Derive:
    """Derives from a trajectory with the score above; counts what it is asked."""

    def __init__(self, folder: Path, alpha_NLC: np.ndarray | None = None) -> None:
        if alpha_NLC is None:
            alpha_NLC = np.random.default_rng(3).normal(size=(10, SLOTS, 3))
        self.path = write(folder / "pi.npz", alpha_NLC, LABELS)
        self.asked = Counter[str]()

    def score(self, layout: Layout) -> Score:
        self.asked[layout_letters(layout)] += 1
        return table_score(layout)

    def __call__(self, method: str, flops: float | None = None, **options: Any) -> Derived:
        self.asked.clear()
        limits = () if flops is None else (Limit(cost, flops),)
        request = Request(
            DeriveConfig(method=method, **options), CANDIDATES, SLOTS, cost, {0: self.path},
            score=self.score, limits=limits,
        )  # fmt: skip
        return method_of(method)(request)


@pytest.fixture
def by(tmp_path: Path) -> Derive:
    return Derive(tmp_path)


def test_top_k_takes_the_best_by_score_of_the_likeliest(by: Derive) -> None:
    derived = by("top_k", top=12)
    assert len(derived.considered) == 12
    log_pi = [each.log_pi for each in derived.considered]
    assert log_pi == sorted(log_pi, reverse=True)
    assert len({each.layout for each in derived.considered}) == 12
    nats = [table_score(each.layout).nats_per_token for each in derived.considered]
    assert derived.layout == derived.considered[int(np.argmin(nats))].layout
    assert derived.layout != derived.considered[0].layout, "else the scores were for nothing"
    pi = derived.evidence.pi
    for each in derived.considered:
        parts = [pi[slot][candidate.label] for slot, candidate in enumerate(each.layout)]
        assert each.log_pi == pytest.approx(np.log(parts).sum(), abs=1e-4)
    assert derived.evidence.inherited.nats_per_token == pytest.approx(min(nats), abs=1e-6)


def test_sampled_scores_each_drawn_layout_once_and_takes_the_best(by: Derive) -> None:
    derived = by("sampled", samples=60, seed=5)
    assert set(by.asked.values()) == {1}
    assert len(by.asked) == len(derived.considered) <= 60
    best = min(derived.considered, key=lambda each: each.score.nats_per_token)
    assert derived.layout == best.layout
    assert layouts(derived) == layouts(by("sampled", samples=60, seed=5))
    assert layouts(derived) != layouts(by("sampled", samples=60, seed=6))


def test_draws_have_the_frequencies_of_pi() -> None:
    pi_LC = np.array([[0.2, 0.5, 0.3], [0.0, 0.1, 0.9]])
    count = 20_000
    drawn_NL = np.array(draws(pi_LC, count, np.random.default_rng(0)))
    for slot, pi_C in enumerate(pi_LC):
        found_C = (drawn_NL[:, slot, None] == np.arange(3)).mean(axis=0)
        assert np.abs(found_C - pi_C).max() < 5 * np.sqrt(0.25 / count)
    assert not (drawn_NL[:, 1] == 0).any()


@pytest.mark.parametrize("method", ["beam", "evolution"])
@pytest.mark.parametrize("flops", [None, 24.0])
def test_beam_and_evolution_find_the_best_of_all_layouts(
    by: Derive, method: str, flops: float | None
) -> None:
    allowed = [each for each in every_layout() if flops is None or cost(each) <= flops]
    best = min(allowed, key=lambda each: table_score(each).nats_per_token)
    derived = by(method, flops=flops, width=4, population=14, generations=3)
    assert network_of(derived.layout, None) == network_of(best, None)
    assert all(cost(each.layout) <= (flops or 1e9) for each in derived.considered)
    assert len(by.asked) < len(every_network()), "else it tried them all"


@pytest.mark.parametrize("flops", [10.0, 16.0, 21.0, 24.0])
def test_argmax_takes_the_likeliest_layout_of_a_budget(by: Derive, flops: float) -> None:
    every = by("top_k", top=3**SLOTS).considered
    fitting = [each for each in every if cost(each.layout) <= flops]
    derived = by("argmax", flops=flops)
    assert derived.layout == max(fitting, key=lambda each: each.log_pi).layout
    assert derived.evidence.method.startswith("argmax within the budget of the mean alpha")
    assert derived.ranked[0] == derived.layout
    log_pi = {each.layout: each.log_pi for each in fitting}
    ranked = [log_pi[layout] for layout in derived.ranked]
    assert ranked == sorted(ranked, reverse=True)
    assert set(derived.ranked) == set(log_pi)


def test_children_come_from_the_better_half(by: Derive) -> None:
    for seed in range(10):
        options = {"population": 6, "generations": 1, "mutation": 1e-12, "seed": seed}
        found = [each.layout for each in by("evolution", **options).considered]
        assert len(found) > 6
        better = sorted(found[:6], key=lambda layout: table_score(layout).nats_per_token)[:3]
        for child in found[6:]:
            for slot, candidate in enumerate(child):
                assert candidate in [parent[slot] for parent in better]


def test_a_search_whose_alpha_stood_still_is_scored_and_not_ranked_by_pi(tmp_path: Path) -> None:
    paths = {k: write(tmp_path / f"{k}.npz", np.zeros((4, 2, 3)), LABELS) for k in range(2)}

    def ask(method: str) -> Derived:
        request = Request(
            DeriveConfig(method=method, evaluations=4), CANDIDATES, 2, cost, paths,
            score=table_of_two, alpha_learned=False,
        )  # fmt: skip
        return method_of(method)(request)

    for method in ("argmax", "top_k"):
        with pytest.raises(
            ValueError,
            match=rf"^{method}: with search\.estimator spos .* sampled, beam or evolution",
        ):
            ask(method)
    for method in ("sampled", "beam", "evolution"):
        assert ask(method).evidence.agreement is None


def table_of_two(layout: Layout) -> Score:
    nats = 3.0 + sum(LABELS.index(candidate.label) for candidate in layout)
    return Score(np.array([nats, nats]), np.array([1.0, 1.0]))


def test_several_searches_are_averaged_in_alpha(tmp_path: Path) -> None:
    alphas = np.random.default_rng(1).normal(size=(3, 4, 2, 3)) * 3
    paths = {
        seed: write(tmp_path / f"{seed}.npz", alpha, LABELS) for seed, alpha in enumerate(alphas)
    }
    request = Request(DeriveConfig(average=0.5), CANDIDATES, 2, cost, paths)
    derived = method_of("argmax")(request)
    mean_LC = alphas.astype(np.float32)[:, 2:].mean(axis=(0, 1))
    pi_LC = np.exp(mean_LC) / np.exp(mean_LC).sum(axis=1, keepdims=True)
    for slot in range(2):
        assert list(derived.evidence.pi[slot].values()) == pytest.approx(pi_LC[slot], abs=1e-5)
    assert derived.evidence.method == "argmax of the mean alpha of the last 2 of 4 steps of " + (
        "3 searches"
    )
    found = derived.evidence.agreement
    assert found.searches == (0, 1, 2)
    each_RL = alphas[:, 2:].mean(axis=1).argmax(axis=2)
    alike = [
        np.mean([one == two for one, two in itertools.combinations(each_RL[:, slot], 2)])
        for slot in range(2)
    ]
    assert found.blocks == pytest.approx(alike, abs=1e-6)


TWO_DENSE = [*LABELS, {"kind": "dense", "label": "dense_twin"}]


@pytest.mark.parametrize("tie_blocks", [None, 2])
@pytest.mark.parametrize("method", ["top_k", "sampled", "beam", "evolution"])
def test_no_table_of_scored_layouts_holds_a_network_twice(
    tmp_path: Path, method: str, tie_blocks: int | None
) -> None:
    candidates = tiny.candidates(*TWO_DENSE)
    labels = [candidate.label for candidate in candidates]
    alpha_NLC = np.random.default_rng(5).normal(scale=0.5, size=(10, SLOTS, len(labels)))
    asked: list[Network] = []

    def score(layout: Layout) -> Score:
        asked.append(network_of(layout, tie_blocks))
        return table_score(tuple(each.model_copy(update={"label": each.kind}) for each in layout))

    config = DeriveConfig(method=method, top=60, samples=300, evaluations=60, population=20)
    path = write(tmp_path / "pi.npz", alpha_NLC, labels)
    request = Request(
        config, candidates, SLOTS, lambda layout: 1.0, {0: path}, score=score, tie_blocks=tie_blocks
    )
    derived = method_of(method)(request)
    networks = [network_of(each.layout, tie_blocks) for each in derived.considered]
    assert len(networks) >= 40
    assert len(set(networks)) == len(networks)
    assert asked == networks, "each was scored once"


def test_a_beam_looks_at_every_place_for_a_block_more(tmp_path: Path) -> None:
    """From a block that stands first, one before it, though no slot before it is free."""
    alpha_NLC = np.tile([[4.0, 0.0, 0.0], [0.0, 0.0, 4.0]], (10, 1, 1))
    path = write(tmp_path / "pi.npz", alpha_NLC, LABELS)
    config = DeriveConfig(method="beam", width=1, evaluations=9)

    def score(layout: Layout) -> Score:
        nats = {"a": 3.0, "da": 2.0}.get("".join(layout_letters(layout).split()).strip("i"), 4.0)
        return Score(np.array([nats, nats]), np.array([1.0, 1.0]))

    derived = method_of("beam")(Request(config, CANDIDATES, 2, cost, {0: path}, score=score))
    assert layout_letters(derived.layout) == "d a"
