"""Opponents and replays: what is spent, what is judged, and that draws follow their seeds."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from nas.probing.base import Answer, Method, Space, Training
from nas.probing.opponents import Halving, LocalEvolution, RandomSearch, RulesAlone
from nas.probing.predictor import Predictor
from nas.probing.replay import Truth, replay, replays
from tests.nas.probing.conftest import letters_of

COST = 9.0
METHODS: dict[str, Callable[[int], Method]] = {
    "predictor": lambda number: Predictor(),
    "random probes": lambda number: Predictor(drawn_by=number),
    "random search": lambda number: RandomSearch(COST, number),
    "rules": lambda number: RulesAlone(COST),
    "halving": lambda number: Halving(COST, number),
    "evolution": lambda number: LocalEvolution(COST, number),
}


@pytest.fixture(scope="module")
def truth(bench: Space) -> Truth:
    """Nats by how far a layout is from aaaddd, with noise; test nats are 0.1 more."""
    generator = np.random.default_rng(1)
    best = bench.number_of([0, 0, 0, 1, 1, 1])
    assert best is not None
    apart_N = (bench.kind_NL != bench.kind_NL[best]).sum(axis=1)
    valid_NS = 4.0 + 0.05 * apart_N[:, None] + generator.normal(scale=0.002, size=(64, 3))
    half_N = 4.3 + 0.05 * apart_N + generator.normal(scale=0.002, size=64)
    return Truth(bench, valid_NS, valid_NS + 0.1, half_N)


def asked(method: Method, truth: Truth) -> tuple[list[list[Training]], Answer]:
    """The batches that a method asks for."""
    results: dict[Training, float] = {}
    batches = list[list[Training]]()
    while not isinstance(step := method(truth.space, results), Answer):
        assert step
        assert not set(step) & results.keys()
        batches.append([*step])
        for one in step:
            of_half = truth.half_N[one.network]
            half = one.length == "half"
            results[one] = of_half if half else truth.valid_NS[one.network, one.seed - 1]
    return batches, step


@pytest.mark.parametrize("name", ["random search", "rules", "halving", "evolution"])
def test_an_opponent_spends_what_it_is_given_and_no_more(truth: Truth, name: str) -> None:
    for number in range(5):
        batches, answer = asked(METHODS[name](number), truth)
        trainings = [*chain.from_iterable(batches)]
        spent = sum(truth.space.cost(one) for one in trainings)
        slack = 1.2 if name == "halving" else 0.0
        assert COST - 1.3 <= spent <= COST + slack
        assert answer.network in {one.network for one in trainings}


def test_random_search_takes_the_best_of_different_networks(truth: Truth) -> None:
    (batch,), answer = asked(RandomSearch(COST, 3), truth)
    assert len({one.network for one in batch}) == len(batch)
    assert answer.network == min((one.network for one in batch), key=lambda n: truth.valid_NS[n, 0])
    (other,), _ = asked(RandomSearch(COST, 4), truth)
    assert {one.network for one in other} != {one.network for one in batch}


def test_halving_trains_a_third_of_the_probes_and_the_best_two_again(truth: Truth) -> None:
    (halves, fulls, again), answer = asked(Halving(COST, 0), truth)
    assert len(halves) == int((COST - 2) / (1 / 2 + 1 / 3)) == 8
    assert all(one.length == "half" for one in halves)
    by_half = sorted((one.network for one in halves), key=lambda n: truth.half_N[n])
    assert [one.network for one in fulls] == by_half[:3]
    by_full = sorted(by_half[:3], key=lambda n: truth.valid_NS[n, 0])
    assert [(one.network, one.seed) for one in again] == [(n, 2) for n in by_full[:2]]
    assert answer.network == min(by_full[:2], key=lambda n: truth.valid_NS[n, :2].mean())


def test_evolution_changes_the_best_so_far_in_one_place(truth: Truth) -> None:
    batches, answer = asked(LocalEvolution(COST, 0), truth)
    networks = [one.network for (one,) in batches]
    assert len(set(networks)) == len(networks)
    for count, child in enumerate(networks[1:], start=1):
        best = min(networks[:count], key=lambda n: truth.valid_NS[n, 0])
        apart = (truth.space.kind_NL[child] != truth.space.kind_NL[best]).sum()
        assert apart == 1
    assert answer.network == min(networks, key=lambda n: truth.valid_NS[n, 0])


def test_rules_alone_train_every_rule_and_then_again(truth: Truth) -> None:
    (batch,), answer = asked(RulesAlone(1000.0), truth)
    numbers = set(truth.space.rules.values())
    assert {(one.network, one.seed) for one in batch} == {(n, s) for n in numbers for s in (1, 2)}
    assert letters_of(truth.space, answer.network) == "aaaddd"


def test_random_probes_share_the_design_and_the_finals(truth: Truth) -> None:
    chosen, _ = asked(Predictor(least_chance=0.0), truth)
    drawn, _ = asked(Predictor(drawn_by=0), truth)
    other, _ = asked(Predictor(drawn_by=1), truth)
    assert chosen[0] == drawn[0]
    assert [len(batch) for batch in drawn] == [len(batch) for batch in chosen]
    assert drawn[1] != chosen[1]
    assert drawn[1] != other[1]


def test_an_answer_is_judged_by_test_nats_of_the_seeds_that_judge(truth: Truth) -> None:
    outcome = replay(truth, RulesAlone(1000.0), [2])
    judged_N = truth.test_NS[:, 2]
    best = truth.space.number_of([0, 0, 0, 1, 1, 1])
    assert outcome.regret == pytest.approx(judged_N[best] - judged_N.min())
    assert outcome.trainings == 2 * len(set(truth.space.rules.values()))
    assert outcome.cost == pytest.approx(outcome.trainings, rel=0.05)
    with pytest.raises(ValueError, match="the table has 1 seeds of full length, and a method asks"):
        replay(replace(truth, valid_NS=truth.valid_NS[:, :1]), RulesAlone(1000.0), [0])


def test_replays_are_of_other_parts_and_the_same_for_a_seed(truth: Truth) -> None:
    sizes = list[int]()

    def method_of(number: int) -> Method:
        search = RandomSearch(COST, number)

        def counted(space: Space, results: dict[Training, float]) -> object:
            sizes.append(len(space))
            assert len(set(space.rules.values())) == len(set(truth.space.rules.values()))
            for name, place in space.rules.items():
                old = truth.space.rules[name]
                assert (space.kind_NL[place] == truth.space.kind_NL[old]).all()
            return search(space, results)

        return counted  # type: ignore[return-value]

    one = replays(truth, {"it": method_of}, 6, seed=1)["it"]
    assert one == replays(truth, {"it": method_of}, 6, seed=1)["it"]
    assert one != replays(truth, {"it": method_of}, 6, seed=2)["it"]
    named = len(set(truth.space.rules.values()))
    assert set(sizes) == {named + round(0.75 * (64 - named))}


def test_the_predictor_wins_where_its_features_are_right(truth: Truth) -> None:
    outcomes = replays(truth, METHODS, 8)
    regret = {name: np.mean([one.regret for one in of]) for name, of in outcomes.items()}
    assert regret["predictor"] <= 0.01
    assert regret["random search"] > 0.02
    assert regret["evolution"] > 0.02 or regret["halving"] > 0.02
