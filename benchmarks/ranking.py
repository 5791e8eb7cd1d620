"""How well something ranks layouts: Kendall's tau-b with intervals, ceilings, and what may be said.

N layouts   S training seeds   B resamples or weightings   K rival predictors
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from benchmarks.harness import shown_by
from nas.statistics.intervals import comparison_words, smallest_visible

Array = NDArray[np.float64]
LEAST_LAYOUTS = 20
_RESAMPLES = 10_000


def kendall(one_N: Array, other_N: Array) -> float | None:
    """Kendall's tau-b (1945); None where one of the two ties every pair."""
    value = float(kendalltau(one_N, other_N).statistic)
    return None if np.isnan(value) else value


def weighted_taus(one_N: Array, other_N: Array, weight_BN: Array) -> Array:
    """tau-b where each thing counts as often as its weight says; nan where it is undefined.

    With how often each thing was drawn for weights this is the tau-b of a resample: two copies of
    one thing are a tie on both sides, which tau-b leaves out.
    """
    one_NN = np.sign(one_N[:, None] - one_N)
    other_NN = np.sign(other_N[:, None] - other_N)

    def total(of_NN: Array) -> Array:
        return ((weight_BN @ of_NN) * weight_BN).sum(axis=1)

    untied_B = np.sqrt(total(np.abs(one_NN)) * total(np.abs(other_NN)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(untied_B > 0, total(one_NN * other_NN) / untied_B, np.nan)


def ceiling_tau(nats_SN: Array, draws: int = 2000) -> float:
    """The tau-b that the layouts' true nats are expected to have with their mean over the seeds.

    The agreement of two trainings is less: there both sides are noisy. The noise of one training is
    pooled over layouts, with what a seed does to all layouts alike taken out; the variance that it
    gives the means is taken from theirs, and the layouts, drawn together by that much, stand for
    the truth to which noise is added. 0 where the layouts differ by no more than noise.
    """
    seeds, layouts = nats_SN.shape
    mean_N = nats_SN.mean(axis=0)
    spread = float(mean_N.var(ddof=1))
    rest_SN = nats_SN - mean_N - nats_SN.mean(axis=1, keepdims=True) + nats_SN.mean()
    noise = float((rest_SN**2).sum()) / ((seeds - 1) * (layouts - 1)) / seeds
    if spread <= noise:
        return 0.0
    truth_N = mean_N.mean() + (mean_N - mean_N.mean()) * np.sqrt(1 - noise / spread)
    drawn_RN = np.random.default_rng(0).normal(size=(draws, layouts)) * np.sqrt(noise)
    return float(np.mean([kendall(truth_N, truth_N + drawn_N) or 0.0 for drawn_N in drawn_RN]))


@dataclass(frozen=True)
class Tau:
    """Kendall's tau-b, None where every pair is tied; a 95% interval by bootstrap over layouts."""

    tau: float | None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.tau is None:
            return "undefined (all alike)"
        if self.low is None:
            return f"{self.tau:+.3f}"
        return f"{self.tau:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True)
class Resamples:
    """How often each layout stands in each bootstrap resample; the same for all compared."""

    weight_BN: Array

    @classmethod
    def of(cls, layouts: int, count: int = _RESAMPLES) -> "Resamples":
        """Resamples of so many layouts, with replacement; always the same ones."""
        chance_N = np.full(layouts, 1 / layouts)
        drawn = np.random.default_rng(0).multinomial(layouts, chance_N, size=count)
        return cls(drawn.astype(np.float64))

    def taus(self, one_N: Array, other_N: Array) -> Array:
        """tau-b in every resample; nan where it is undefined."""
        return weighted_taus(one_N, other_N, self.weight_BN)

    def tau(self, one_N: Array, other_N: Array) -> Tau:
        """tau-b with its interval, the middle 95% of the resamples that have one."""
        value = kendall(one_N, other_N)
        return Tau(value) if value is None else Tau(value, *_middle(self.taus(one_N, other_N)))

    def mean_tau(self, rows_SN: Array) -> Tau:
        """The mean of tau over all pairs of rows that have one: how far two trainings agree."""
        pairs = [(rows_SN[i], rows_SN[j]) for i in range(len(rows_SN)) for j in range(i)]
        taus = [(tau, pair) for pair in pairs if (tau := kendall(*pair)) is not None]
        if not taus:
            return Tau(None)
        taus_B = np.mean([self.taus(*pair) for _, pair in taus], axis=0)
        return Tau(float(np.mean([tau for tau, _ in taus])), *_middle(taus_B))

    def lead(self, one_N: Array, rivals: Sequence[Array], truth_N: Array) -> Tau:
        """Tau of one less the largest of its rivals', each of them taken both ways.

        The largest of several is large by luck too, so the interval allows for the choice. Its
        lower end is the least of the lower ends against each rival by itself: one that is above 0
        beats them all. Its upper end adds to the difference what, in 97.5% of the resamples, no
        rival gains on the one beyond what it has in the layouts themselves, and is at most 1: the
        largest of taus taken both ways is never below 0. Every tau with the truth must be defined.
        """
        lead_K, lead_KB = [], []
        one, one_B = kendall(one_N, truth_N), self.taus(one_N, truth_N)
        assert one is not None
        for rival_N in rivals:
            rival, rival_B = kendall(rival_N, truth_N), self.taus(rival_N, truth_N)
            assert rival is not None
            lead_K += [one - rival, one + rival]
            lead_KB += [one_B - rival_B, one_B + rival_B]
        lead = min(lead_K)
        low = min(_middle(lead_B)[0] for lead_B in lead_KB)
        lost_B = np.fmax.reduce([of - of_B for of, of_B in zip(lead_K, lead_KB, strict=True)])
        return Tau(lead, low, min(1.0, lead + _middle(lost_B)[1]))


def _middle(value_B: Array) -> tuple[float, float]:
    low, high = np.nanquantile(value_B, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Ranking:
    """What the SuperNet and trivial predictors say of layouts that were trained alone.

    Attributes:
        n: how many layouts.
        trivial: tau of each trivial predictor, in the direction that fits these layouts better.
        direction: of each of them, whether more or fewer is taken for better.
        agreement: tau of two trainings with each other, mean over pairs of seeds; None with one.
        ceiling: tau that a perfect predictor is expected to reach with the mean over the seeds, by
            the trainings' noise; None with one seed.
        best: the trivial predictor of largest tau; None where none has one.
        difference: tau of the SuperNet less that of the best; see `Resamples.lead`.
    """

    n: int
    supernet: Tau
    trivial: dict[str, Tau]
    direction: dict[str, str]
    agreement: Tau | None
    ceiling: float | None
    best: str | None
    difference: Tau | None

    @property
    def visible(self) -> float | None:
        """The smallest lead over the best, or over chance, that is seen four times in five."""
        lead = self.difference or self.supernet
        if lead.tau is None or lead.low is None:
            return None
        return smallest_visible(lead.tau - lead.low, self.n)

    @property
    def verdict(self) -> str:
        """What may be said, in one line."""
        if self.n < LEAST_LAYOUTS:
            return f"no verdict possible (n = {self.n} layouts; {LEAST_LAYOUTS} are the least)"
        tau = f"tau {self.supernet}"
        if self.supernet.low is None:
            return f"the SuperNet ranks nothing: its {tau}"
        if self.best is None or self.difference is None:
            return f"{self._against('chance', self.supernet)}: {tau}, n = {self.n} layouts"
        best = f"the best trivial predictor, {self.direction[self.best]} {self.best}"
        return (
            f"{self._against(best, self.difference)}: {tau} against {self.trivial[self.best]}, "
            f"difference {self.difference}, n = {self.n} layouts"
        )

    def _against(self, rival: str, lead: Tau) -> str:
        assert lead.low is not None
        assert lead.high is not None
        # Of a tau more is better.
        shown = shown_by((-lead.high, -lead.low))
        return comparison_words("the SuperNet", rival, shown, f"{self.visible:.3f}", verb="ranks")


def ranking(
    alone_SN: Array,
    supernet_N: Array,
    trivial: Mapping[str, Array],
    resamples: int = _RESAMPLES,
) -> Ranking:
    """Rank layouts by nats after training alone, by the SuperNet's weights, and by trivial numbers.

    A trivial predictor is taken in the direction that fits the layouts at hand, which favours it:
    what the SuperNet then adds it adds beyond any doubt about the sign.
    """
    drawn, alone_N = Resamples.of(alone_SN.shape[1], resamples), alone_SN.mean(axis=0)
    supernet = drawn.tau(supernet_N, alone_N)
    signs = {name: _sign(value_N, alone_N) for name, value_N in trivial.items()}
    taus = {name: drawn.tau(signs[name] * trivial[name], alone_N) for name in trivial}
    known = {name: tau.tau for name, tau in taus.items() if tau.tau is not None}
    compared = bool(known) and supernet.tau is not None
    several = len(alone_SN) > 1
    return Ranking(
        n=alone_SN.shape[1],
        supernet=supernet,
        trivial=taus,
        direction={name: "fewer" if sign > 0 else "more" for name, sign in signs.items()},
        agreement=drawn.mean_tau(alone_SN) if several else None,
        ceiling=ceiling_tau(alone_SN) if several else None,
        best=max(known, key=lambda name: known[name]) if known else None,
        difference=drawn.lead(supernet_N, [trivial[name] for name in known], alone_N)
        if compared
        else None,
    )


def _sign(value_N: Array, alone_N: Array) -> float:
    # -1 where more goes with fewer nats, which is better, and where tau is undefined.
    tau = kendall(value_N, alone_N)
    return 1.0 if tau is not None and tau > 0 else -1.0
