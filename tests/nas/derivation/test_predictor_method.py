"""The predictor on LayoutBench: its design, its next probes, its end, against a slow reference."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.derivation.predictor import (
    Deviations,
    Features,
    Predictor,
    Priors,
    features_of,
    posterior,
    rules_of_design,
)
from nas.derivation.training import Answer, Length, Space, Training, Trainings
from tests.nas.derivation.conftest import letters_of, space_of

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
    assert list(answer.ranked) == sorted(chosen, key=lambda n: mean_N[n])
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
    assert answer.ranked[-1] == first.network


def test_the_lead_is_as_unsure_as_the_finals_lie_apart(
    bench: Space, bench_results: Results
) -> None:
    bad_rules = {
        name: n for name, n in bench.rules.items() if name.startswith("attention blocks last")
    }
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


Array = NDArray[np.float64]
DEVIATIONS = Deviations(
    mean=0.7, residual=0.04, half_mean=0.9, offset=0.6, half_residual=0.012, seed=0.03,
    noise_half=0.025, noise_full=0.017,
)  # fmt: skip


def by_weights(
    features: Features, known: dict[Training, float], d: Deviations
) -> tuple[Array, Array]:
    """All terms as unknowns: m, w, r of each network, d, v, q of each network, u of each stream."""
    networks, width = features.value_NP.shape
    streams = sorted({(t.seed, t.length) for t in known})
    widths = [1, width, networks, 1, width, networks, len(streams)]
    starts = np.cumsum([0, *widths])
    prior = np.concatenate(
        [
            [d.mean], features.prior_P, np.full(networks, d.residual), [d.half_mean],
            d.offset * features.prior_P, np.full(networks, d.half_residual),
            np.full(len(streams), d.seed),
        ]
    )  # fmt: skip
    rows, noise = [], []
    for training in known:
        row = np.zeros(starts[-1])
        for block in (0, 3) if training.length == "half" else (0,):
            row[starts[block]] = 1.0
            row[starts[block + 1] : starts[block + 2]] = features.value_NP[training.network]
            row[starts[block + 2] + training.network] = 1.0
        row[starts[6] + streams.index((training.seed, training.length))] = 1.0
        rows.append(row)
        noise.append(d.noise_half if training.length == "half" else d.noise_full)
    design, variance = np.array(rows), np.array(noise) ** 2
    nats = np.array(list(known.values()))
    precision = design.T @ (design / variance[:, None]) + np.diag(prior**-2.0)
    covariance = np.linalg.inv(precision)
    mean = covariance @ (design.T @ ((nats - nats.mean()) / variance))
    asked = np.zeros((networks, starts[-1]))
    asked[:, 0] = 1.0
    asked[:, starts[1] : starts[2]] = features.value_NP
    asked[:, starts[2] : starts[3]] = np.eye(networks)
    return nats.mean() + asked @ mean, asked @ covariance @ asked.T


def beside(cov_NN: Array, best: int) -> Array:
    """The variance of what each network is above one."""
    return np.asarray(np.diag(cov_NN) + cov_NN[best, best] - 2 * cov_NN[best])


@pytest.mark.parametrize("half", [8, 0, 64])
@pytest.mark.parametrize("full", [4, 0, 64])
def test_the_posterior_of_64_networks_is_that_of_a_direct_computation(
    bench: Space, bench_results: dict[Training, float], half: int, full: int
) -> None:
    order = np.random.default_rng(half + full).permutation(64)
    known = {Training(int(n), "half", 0) for n in order[:half]}
    known |= {Training(int(n), "full", seed) for n in order[:full] for seed in (1, 2)}
    if not known:
        return
    # Half and full length of one seed too have nothing in common.
    given = {replace(one, seed=max(one.seed, 1)): bench_results[one] for one in known}
    features = features_of(bench, Priors())
    now = posterior(features, given, DEVIATIONS)
    mean_N, cov_NN = by_weights(features, given, DEVIATIONS)
    assert now.mean_N == pytest.approx(mean_N, abs=1e-10)
    assert now.sd_N**2 == pytest.approx(np.diag(cov_NN), abs=1e-10)
    for best in (0, 40):
        assert now.sd_beside_N(best) ** 2 == pytest.approx(beside(cov_NN, best), abs=1e-10)


PRIORS = Priors(share=1, square=2, absence=3, product=4, centroid=5, end=6)


def test_the_features_of_networks_with_empty_slots_are_those_by_hand() -> None:
    features = features_of(space_of(["aad", "d", ""], 4), PRIORS)
    by_name = dict(zip(features.names, features.value_NP.T.tolist(), strict=True))
    assert by_name == {
        "share attention": [0.5, 0, 0],
        "square attention": [0.25, 0, 0],
        "share dense": [0.25, 0.25, 0],
        "square dense": [0.0625, 0.0625, 0],
        "no attention": [0, 1, 1],
        "no dense": [0, 0, 1],
        "attention x dense": [0.125, 0, 0],
        "centroid attention": [pytest.approx(-1 / 3), 0, 0],
        "first attention": [1, 0, 0],
        "last attention": [0, 0, 0],
    }
    assert features.prior_P.tolist() == [1, 2, 1, 2, 3, 3, 4, 5, 6, 6]


def test_where_no_slot_is_empty_the_last_kind_is_the_reference(bench: Space) -> None:
    features = features_of(bench, PRIORS)
    assert "share dense" not in features.names
    assert not any(" x " in name for name in features.names)
    assert features.value_NP.shape == (64, len(features.names))


def test_no_two_networks_of_up_to_four_blocks_have_the_same_features() -> None:
    rows = ["".join(row) for n in range(5) for row in itertools.product("ad", repeat=n)]
    value_NP = features_of(space_of(rows, 4), PRIORS).value_NP
    assert len(rows) == 31
    assert len(np.unique(value_NP.round(9), axis=0)) == 31
