"""How well something ranks layouts: Kendall's tau-b with intervals, and what may be said.

N layouts, B resamples.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEAST = 10
_RESAMPLES = 10_000


@dataclass(frozen=True)
class Tau:
    """Kendall's tau-b with a 95% interval; None where every pair is tied.

    Attributes:
        tau: agreement of two rankings, 1 alike, 0 chance, -1 turned round.
        low: lower end, by a bootstrap over the layouts.
        high: upper end.
    """

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
    """How often each layout stands in each resample; the same for all that is compared."""

    weight_BN: Array

    @classmethod
    def of(cls, layouts: int, seed: int = 0) -> "Resamples":
        """Resamples of so many layouts, with replacement."""
        chance_N = np.full(layouts, 1 / layouts)
        drawn = np.random.default_rng(seed).multinomial(layouts, chance_N, size=_RESAMPLES)
        return cls(drawn.astype(np.float64))

    def taus(self, one_N: Array, other_N: Array) -> Array:
        """tau-b in every resample; nan where it is undefined."""
        return _taus(one_N, other_N, self.weight_BN)

    def tau(self, one_N: Array, other_N: Array) -> Tau:
        """tau-b with its interval, the middle 95% of the resamples that have one."""
        value = kendall(one_N, other_N)
        return Tau(value) if value is None else Tau(value, *_middle(self.taus(one_N, other_N)))

    def mean_tau(self, rows_SN: Array) -> Tau:
        """The mean of tau over all pairs of rows: how far training seeds rank alike."""
        pairs = [(i, j) for i in range(len(rows_SN)) for j in range(i)]
        values = [kendall(rows_SN[i], rows_SN[j]) for i, j in pairs]
        known = [value for value in values if value is not None]
        if not known:
            return Tau(None)
        taus_B = np.mean([self.taus(rows_SN[i], rows_SN[j]) for i, j in pairs], axis=0)
        return Tau(float(np.mean(known)), *_middle(taus_B))


def kendall(one_N: Array, other_N: Array) -> float | None:
    """Kendall's tau-b (1945); None where one of the two ties every pair."""
    value = float(_taus(one_N, other_N, np.ones((1, len(one_N))))[0])
    return None if math.isnan(value) else value


def _taus(one_N: Array, other_N: Array, weight_BN: Array) -> Array:
    """tau-b where each layout counts as often as its weight says; a pair of twins is a tie."""
    one_NN = np.sign(one_N[:, None] - one_N)
    other_NN = np.sign(other_N[:, None] - other_N)

    def total(of_NN: Array) -> Array:
        return ((weight_BN @ of_NN) * weight_BN).sum(axis=1)

    untied_B = np.sqrt(total(np.abs(one_NN)) * total(np.abs(other_NN)))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(untied_B > 0, total(one_NN * other_NN) / untied_B, np.nan)


def _middle(value_B: Array) -> tuple[float, float]:
    low, high = np.nanquantile(value_B, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class Ranking:
    """What the SuperNet and trivial predictors say of layouts that were trained alone.

    Attributes:
        n: how many layouts.
        supernet: tau of the SuperNet's scores.
        trivial: tau of each trivial predictor, in the direction that fits these layouts better.
        direction: of each of them, whether more or fewer is taken for better.
        ceiling: tau between two training seeds; None with one.
        best: the trivial predictor of largest tau; None where none has one.
        difference: tau of the SuperNet less that of the best, with its paired interval.
    """

    n: int
    supernet: Tau
    trivial: dict[str, Tau]
    direction: dict[str, str]
    ceiling: Tau | None
    best: str | None
    difference: Tau | None

    @property
    def verdict(self) -> str:
        """What may be said, in one line."""
        if self.n < LEAST:
            return f"no verdict possible (n = {self.n} layouts; {LEAST} are the least)"
        tau = f"tau {self.supernet}"
        if self.supernet.low is None:
            return f"the SuperNet ranks nothing: its {tau}"
        if self.best is None or self.difference is None:
            if self.supernet.low > 0:
                return f"the SuperNet ranks better than chance: {tau}"
            return f"the SuperNet ranks no better than chance: {tau}"
        low, high = self.difference.low, self.difference.high
        assert low is not None
        assert high is not None
        word = "better than" if low > 0 else "worse than" if high < 0 else "no better than"
        better = f"{self.direction[self.best]} {self.best}"
        return (
            f"the SuperNet ranks {word} the best trivial predictor, {better}: {tau} against "
            f"{self.trivial[self.best]}, difference {self.difference}, n = {self.n} layouts"
        )


def ranking(alone_SN: Array, supernet_N: Array, trivial: Mapping[str, Array]) -> Ranking:
    """Compare rankings of the same layouts.

    A trivial predictor is taken in the direction that fits the layouts at hand, which favours it:
    what the SuperNet then adds it adds beyond any doubt about the sign.

    Args:
        alone_SN: nats after training alone, by training seed.
        supernet_N: nats by the SuperNet's weights.
        trivial: other numbers of the layouts.
    """
    layouts = alone_SN.shape[1]
    resamples, alone_N = Resamples.of(layouts), alone_SN.mean(axis=0)
    supernet = resamples.tau(supernet_N, alone_N)
    signs = {name: _sign(value_N, alone_N) for name, value_N in trivial.items()}
    taus = {name: resamples.tau(signs[name] * trivial[name], alone_N) for name in trivial}
    known = {name: each.tau for name, each in taus.items() if each.tau is not None}
    best = max(known, key=lambda name: known[name]) if known else None
    difference = None
    if best is not None and supernet.tau is not None:
        less_B = resamples.taus(supernet_N, alone_N)
        less_B = less_B - resamples.taus(signs[best] * trivial[best], alone_N)
        difference = Tau(supernet.tau - known[best], *_middle(less_B))
    return Ranking(
        n=layouts,
        supernet=supernet,
        trivial=taus,
        direction={name: "fewer" if sign > 0 else "more" for name, sign in signs.items()},
        ceiling=resamples.mean_tau(alone_SN) if len(alone_SN) > 1 else None,
        best=best,
        difference=difference,
    )


def _sign(value_N: Array, alone_N: Array) -> float:
    """1 where more goes with more nats, which is worse; -1 where more is better, or no telling."""
    tau = kendall(value_N, alone_N)
    return 1.0 if tau is not None and tau > 0 else -1.0
