"""The posterior against one computed by the weights, one by one, with an explicit inverse."""

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.derivation.predictor import Deviations, Features, Priors, features_of, posterior
from nas.derivation.training import Space, Training

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
    given = {training: bench_results[training] for training in known}
    features = features_of(bench, Priors())
    now = posterior(features, given, DEVIATIONS)
    mean_N, cov_NN = by_weights(features, given, DEVIATIONS)
    assert now.mean_N == pytest.approx(mean_N, abs=1e-10)
    assert now.sd_N**2 == pytest.approx(np.diag(cov_NN), abs=1e-10)
    for best in (0, 40):
        assert now.sd_beside_N(best) ** 2 == pytest.approx(beside(cov_NN, best), abs=1e-10)
