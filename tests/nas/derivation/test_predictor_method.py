"""The predictor on LayoutBench: its design, its next probes, its end, against a slow reference."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from nas.derivation.predictor import Deviations, Predictor, features_of, rules_of_design
from nas.derivation.training import Answer, Length, Space, Training, Trainings
from tests.nas.derivation.conftest import letters_of
from tests.nas.derivation.test_regression import beside, by_weights

Results = dict[Training, float]


def trained(method: Predictor, space: Space, table: Results) -> tuple[Answer, list[list[Training]]]:
    """Run a method on a table to its end; the batches it asked for."""
    batches = list[list[Training]]()

    def train(networks: Sequence[int], length: Length, seeds: Sequence[int]) -> list[float]:
        batches.append([Training(n, length, seed) for seed in seeds for n in networks])
        return [table[training] for training in batches[-1]]

    answer = method(space, Trainings(train))
    asked = [*itertools.chain.from_iterable(batches)]
    assert all(batches)
    assert len(set(asked)) == len(asked), "none twice"
    return answer, batches


def test_the_first_design_has_rules_of_few_and_of_many_attention_blocks(bench: Space) -> None:
    design = [letters_of(bench, number) for number in rules_of_design(bench)]
    assert design == ["addddd", "aadddd", "aaaadd", "aaaaad", "adadad", "aaaddd", "dddaaa"]
    proposing = replace(bench, proposed=(0, 63, 5))
    assert rules_of_design(proposing) == [*rules_of_design(bench), 0, 63]


def test_every_choice_is_that_of_a_slow_reference(bench: Space, bench_results: Results) -> None:
    method = Predictor(cap=13, least_chance=0.0)
    answer, batches = trained(method, bench, bench_results)
    *probes, finals = batches
    features = features_of(bench, method.priors)
    known: Results = {}
    for asked, batch in enumerate(probes):
        if asked:
            imagined = dict(known)
            for training in batch:
                mean_N, cov_NN = by_weights(features, imagined, method.deviations)
                best = min((t.network for t in known), key=lambda n: mean_N[n])
                hoped_N = mean_N - np.sqrt(beside(cov_NN, best).clip(0))
                waiting = set(range(64)) - {t.network for t in imagined}
                assert training.network == min(waiting, key=lambda n: hoped_N[n])
                imagined[Training(training.network, "full", -1)] = mean_N[training.network]
        known |= {training: bench_results[training] for training in batch}
    assert [len(batch) for batch in probes] == [7, 2, 2, 2]
    assert all(t.length == "half" and t.seed == 0 for batch in probes for t in batch)

    mean_N, _ = by_weights(features, known, method.deviations)
    chosen = set(mean_N.argsort()[:3].tolist())
    chosen.add(min(bench.rules.values(), key=lambda n: mean_N[n]))
    assert {(t.network, t.length, t.seed) for t in finals} == {
        (number, "full", seed) for number in chosen for seed in (1, 2)
    }
    known |= {training: bench_results[training] for training in finals}
    mean_N, cov_NN = by_weights(features, known, method.deviations)
    assert answer.network == min(chosen, key=lambda n: mean_N[n])
    assert list(answer.finalists) == sorted(chosen, key=lambda n: mean_N[n])
    rule = min(chosen & set(bench.rules.values()), key=lambda n: mean_N[n])
    assert answer.best_rule == rule
    lead, sd = answer.lead
    assert lead == pytest.approx(mean_N[rule] - mean_N[answer.network], abs=1e-10)
    assert sd**2 == pytest.approx(beside(cov_NN, rule)[answer.network], abs=1e-10)


def test_probes_end_where_no_untrained_network_is_likely_to_be_better(
    bench: Space, bench_results: Results
) -> None:
    method = Predictor(cap=64, margin_nats=0.02, deviations=Deviations(residual=0.004))
    _, batches = trained(method, bench, bench_results)
    probes = list(itertools.chain.from_iterable(batches[:-1]))
    assert 7 < len(probes) < 64
    features = features_of(bench, method.priors)
    for count, ended in ((len(probes) - 2, False), (len(probes), True)):
        known = {training: bench_results[training] for training in probes[:count]}
        mean_N, cov_NN = by_weights(features, known, method.deviations)
        probed = [training.network for training in known]
        best = min(probed, key=lambda n: mean_N[n])
        lead_N, sd_N = mean_N[best] - mean_N, np.sqrt(beside(cov_NN, best).clip(1e-24))
        chances = [
            NormalDist(lead_N[n], sd_N[n]).cdf(np.inf)
            - NormalDist(lead_N[n], sd_N[n]).cdf(method.margin_nats)
            for n in set(range(64)) - set(probed)
        ]
        assert (max(chances) < 0.1) == ended


def test_a_probe_that_diverged_is_evidence_and_no_end(bench: Space, bench_results: Results) -> None:
    lost = Training(rules_of_design(bench)[2], "half", 0)
    answer, batches = trained(Predictor(), bench, bench_results | {lost: np.inf})
    assert answer.network != lost.network
    assert np.isfinite(answer.lead).all()
    assert len(batches) > 1


def test_a_finalist_of_which_one_final_diverged_is_not_the_answer(
    bench: Space, bench_results: Results
) -> None:
    """However good the other one was, as replacing it by the worst nats would let it win."""
    method = Predictor()
    first, (*_, finals) = trained(method, bench, bench_results)
    lost, kept = (t for t in finals if t.network == first.network)
    answer, _ = trained(method, bench, bench_results | {lost: np.inf, kept: 1.0})
    assert answer.network != first.network
    assert answer.finalists[-1] == first.network


def test_the_lead_is_as_unsure_as_the_finals_lie_apart(
    bench: Space, bench_results: Results
) -> None:
    bad_rules = {name: n for name, n in bench.rules.items() if name.startswith("dense first")}
    space, method = replace(bench, rules=bad_rules), Predictor()
    _, (*_, finals) = trained(method, space, bench_results)
    calm, wild = (dict(bench_results) for _ in range(2))
    apart = min(t.network for t in finals)
    for t in finals:
        calm[t] = bench_results[replace(t, seed=1)]
        wild[t] = calm[t] + 0.2 * (t.network == apart) * (-1) ** t.seed
    calm_answer, wild_answer = (trained(method, space, results)[0] for results in (calm, wild))
    assert calm_answer.network == wild_answer.network
    assert wild_answer.lead[0] == pytest.approx(calm_answer.lead[0]) != 0
    assert wild_answer.lead[1] > 1.5 * calm_answer.lead[1] > 0
