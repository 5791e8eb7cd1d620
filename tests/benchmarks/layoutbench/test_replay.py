"""Baselines and replays: what is spent, what is judged, and that draws follow their seeds."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from benchmarks.layoutbench.methods import (
    BASELINES,
    Halving,
    LocalEvolution,
    RandomSearch,
    RulesAlone,
    SearchFinals,
    cost_of,
)
from benchmarks.layoutbench.replay import (
    FINALS,
    PREDICTOR,
    Part,
    Proposals,
    Truth,
    contest,
    covered,
    parts,
    replay,
)
from nas.derivation.predictor import Predictor, features_of
from nas.derivation.training import Answer, Method, Space, Training, Trainings

COST = 9.0


@pytest.fixture(scope="module")
def truth(bench: Space) -> Truth:
    """Nats by how far a layout is from aaaddd, with noise; test nats are about 0.1 more."""
    generator = np.random.default_rng(1)
    apart_N = (bench.kind_NL != bench.kind_NL[best_of(bench)]).sum(axis=1)
    valid_NS = 4.0 + 0.05 * apart_N[:, None] + generator.normal(scale=0.002, size=(64, 3))
    half_N = 4.3 + 0.05 * apart_N + generator.normal(scale=0.002, size=64)
    test_NS = valid_NS + 0.1 + generator.normal(scale=0.001, size=(64, 3))
    return Truth(bench, valid_NS, test_NS, half_N)


def best_of(space: Space) -> int:
    return space.number_of[0, 0, 0, 1, 1, 1]


def asked(method: Method, truth: Truth) -> tuple[list[Training], Answer]:
    """The trainings that a method asks for, and its answer."""
    train = Trainings(truth.nats)
    answer = method(truth.space, train)
    return [*train.results], answer


@pytest.mark.parametrize(
    ("method_of", "slack"),
    [
        (RandomSearch, 0.0),
        (lambda cost, number: RulesAlone(cost), 0.0),
        (Halving, 1.2),
        (LocalEvolution, 0.0),
    ],
)
def test_an_baseline_spends_what_it_is_given_and_no_more(
    truth: Truth, method_of: type[RandomSearch], slack: float
) -> None:
    for number in range(5):
        trainings, answer = asked(method_of(COST, number), truth)
        spent = sum(cost_of(truth.space, one) for one in trainings)
        assert COST - 1.3 <= spent <= COST + slack
        assert answer.network in {one.network for one in trainings}


def test_halving_trains_a_third_of_the_probes_and_the_best_two_again(truth: Truth) -> None:
    trainings, answer = asked(Halving(COST, 0), truth)
    halves, fulls, again = trainings[:8], trainings[8:11], trainings[11:]
    assert len(halves) == int((COST - 2) / (1 / 2 + 1 / 3)) == 8
    assert all(one.length == "half" for one in halves)
    by_half = sorted((one.network for one in halves), key=lambda n: truth.half_N[n])
    assert [one.network for one in fulls] == by_half[:3]
    by_full = sorted(by_half[:3], key=lambda n: truth.valid_NS[n, 0])
    assert [(one.network, one.seed) for one in again] == [(n, 2) for n in by_full[:2]]
    assert answer.network == min(by_full[:2], key=lambda n: truth.valid_NS[n, :2].mean())


def test_evolution_changes_the_best_so_far_in_one_place(truth: Truth) -> None:
    trainings, answer = asked(LocalEvolution(COST, 0), truth)
    networks = [one.network for one in trainings]
    assert len(set(networks)) == len(networks)
    for count, child in enumerate(networks[1:], start=1):
        best = min(networks[:count], key=lambda n: truth.valid_NS[n, 0])
        assert (truth.space.kind_NL[child] != truth.space.kind_NL[best]).sum() == 1
    assert answer.network == min(networks, key=lambda n: truth.valid_NS[n, 0])


def test_what_a_search_proposes_is_trained_for_what_the_search_leaves(truth: Truth) -> None:
    space = replace(truth.space, proposed=(40, 3, 60, 11))
    proposed = replace(truth, space=space)
    batch, answer = asked(SearchFinals(COST, 6.0), proposed)
    assert [(one.network, one.seed) for one in batch][:2] == [(40, 1), (3, 1)]
    assert 6.0 + sum(cost_of(space, one) for one in batch) <= COST
    batch, answer = asked(SearchFinals(6.0 + 100.0, 6.0), proposed)
    assert [(one.network, one.seed) for one in batch] == [
        (n, seed) for seed in (1, 2) for n in (40, 3, 60, 11)
    ]
    means = truth.valid_NS[:, :2].mean(axis=1)
    assert answer.network == min((40, 3, 60, 11), key=lambda n: means[n])
    assert len(asked(SearchFinals(1.0, 6.0), proposed)[0]) == 1, "its answer, whatever is left"


def test_an_answer_is_judged_by_test_nats_of_seeds_that_chose_neither_it_nor_the_best(
    truth: Truth,
) -> None:
    outcome = replay(truth, RulesAlone(1000.0), [2], spent=3.0)
    best = best_of(truth.space)
    assert outcome.network == best
    by_others = truth.test_NS[:, :2].mean(axis=1).argmin()
    judged = truth.test_NS[[best, by_others], 2]
    assert outcome.regret == pytest.approx(judged[0] - judged[1])
    assert outcome.cost == pytest.approx(3.0 + len(outcome.results), rel=0.05)
    alone = replay(truth, RulesAlone(1000.0), [0, 1, 2])
    mean_N = truth.test_NS.mean(axis=1)
    assert alone.regret == pytest.approx(mean_N[best] - mean_N.min())
    better_NS = truth.test_NS.copy()
    better_NS[5] = 3.0
    missed = replay(replace(truth, test_NS=better_NS), RulesAlone(1000.0), [2])
    assert missed.regret == pytest.approx(truth.test_NS[best, 2] - 3.0)
    lucky_NS = truth.test_NS.copy()
    lucky_NS[5, 2] = 0.0
    lucky = replay(replace(truth, test_NS=lucky_NS), RulesAlone(1000.0), [2])
    assert abs(lucky.regret) < 0.01, "else its luck would count, and regrets be too large"


def test_parts_are_other_ones_and_the_same_for_a_seed(truth: Truth) -> None:
    named, some = len(set(truth.space.rules.values())), [*parts(truth, 6, seed=1)]
    for part in some:
        space = part.truth.space
        assert len(space) == named + round(0.75 * (64 - named))
        assert part.judges == (2,)
        for name, place in space.rules.items():
            old = truth.space.rules[name]
            assert (space.kind_NL[place] == truth.space.kind_NL[old]).all()
            assert set(part.truth.valid_NS[place]) == set(truth.valid_NS[old])
            assert part.truth.half_N[place] == truth.half_N[old]
    rows = [part.truth.space.kind_NL.tobytes() for part in some]
    assert len(set(rows)) == 6
    assert len({part.truth.valid_NS[0].tobytes() for part in some}) > 1, "seeds in other orders"
    assert [part.truth.space.kind_NL.tobytes() for part in parts(truth, 6, seed=1)] == rows
    two = replace(truth, valid_NS=truth.valid_NS[:, :2], test_NS=truth.test_NS[:, :2])
    assert next(parts(two, 1)).judges == (0, 1)


def test_intervals_hold_as_many_networks_as_they_say_where_the_model_is_right() -> None:
    """Networks of nats that are drawn from the regression's own prior."""
    rows = np.array([*product((0, 1), repeat=7)], dtype=np.int8)
    space = Space(rows, ("attention", "dense"), np.ones(len(rows)))
    method = Predictor(cap=8)
    features, d = features_of(space, method.priors), method.deviations
    inside = list[float]()
    for number in range(60):
        draw = np.random.default_rng(number).normal
        weight_P, offset_P = draw(size=(2, len(features.prior_P))) * features.prior_P
        worth_N = features.value_NP @ weight_P + d.residual * draw(size=len(rows))
        valid_NS = worth_N[:, None] + d.noise_full * draw(size=(len(rows), 3))
        half_N = worth_N + d.offset * features.value_NP @ offset_P
        half_N += d.half_residual * draw(size=len(rows)) + d.noise_half * draw(size=len(rows))
        truth = Truth(space, 4 + valid_NS, 4 + valid_NS, 4.3 + half_N)
        part = Part(number, truth, (2,))
        inside.append(covered(part, method, replay(truth, method, (2,))) or 0.0)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.05)


def test_a_contest_spends_the_same_on_all_and_both_pay_for_a_search(truth: Truth) -> None:
    good, bad = Proposals((best_of(truth.space), 0), 2.5), Proposals((63, 62), 1.5)
    alone, one = contest(truth, 8), contest(truth, 6, searches=[good, bad])
    assert [*alone.costs] == [PREDICTOR, *BASELINES, FINALS]
    for name in BASELINES:
        assert (np.abs(alone.costs[name] - alone.costs[PREDICTOR]) < 1.3).all()
    regret = {name: regret_R.mean() for name, regret_R in alone.regrets_nats.items()}
    assert regret.keys() == {PREDICTOR, *BASELINES, FINALS, "best rule", "oracle rule"}
    assert regret[PREDICTOR] <= 0.01 < 0.02 < regret["random search"]
    assert regret["oracle rule"] <= 0.005
    mean, half_width = alone.ahead("random search")
    assert mean == pytest.approx(regret[PREDICTOR] - regret["random search"])
    assert half_width > 0

    regret_R, cost_R = one.regrets_nats["search, finals"], one.costs["search, finals"]
    assert (regret_R[::2] <= 0.005).all(), "each replay has one search in turn"
    assert (regret_R[1::2] > 0.05).all()
    assert (cost_R[::2] >= 2.5 + 2).all()
    assert (one.costs["predictor + search"] - one.costs[PREDICTOR] > 0.9).all()
    assert ((one.costs["finals + search"] - one.costs[FINALS])[::2] >= 2.5).all()
    assert (one.regrets_nats["finals + search"][::2] <= 0.005).all()
