"""Networks scored by the SuperNet's weights, each once, and the best; the likeliest layouts.

L slots   C candidates   K layouts
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from model import Measured, Network, layout_letters
from nas.derivation.base import Choice, Considered, Derived, Request
from nas.derivation.searched import Searched, read_searches

# log pi is taken in multiples of this: their sums are exact, so that layouts are equal where they
# should be and not as rounding has it.
STEP = 2.0**-32
_LOOKED_AT = 100_000


def likeliest(log_pi_LC: NDArray[np.float64], count: int) -> list[tuple[float, tuple[int, ...]]]:
    """The layouts of largest product of pi, by a dynamic programme over the slots.

    Slots are independent, so a layout among the best has a beginning among the best beginnings of
    its length: of each length `count` are kept, which takes O(L K C log(K C)). All C^L layouts
    are never looked at. Sums of log pi are exact but for its rounding to multiples of STEP.

    Args:
        log_pi_LC: per slot the logarithm of each candidate's probability.
        count: how many layouts; where there are fewer, all.

    Returns:
        log pi and the candidates' indices; log pi never rises. Of equal layouts those come first
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
    """What was scored so far of the networks that a derivation considers.

    Attributes:
        request: candidates, costs, the score itself.
        method: name of the derivation, for messages.
        most: how many networks may be scored.
        searched: what the searches found.
        considered: by choice, in the order in which they were scored; of each network the form
            that came first.
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

    def best(self, count: int, among: Sequence[Choice] | None = None) -> list[Choice]:
        """The best ones; of equal ones the one that was scored first."""
        chosen = list(self.considered) if among is None else list(among)
        return sorted(chosen, key=lambda choice: self.considered[choice].score.nats_per_token)[
            :count
        ]

    def likeliest(self, count: int) -> list[Choice]:
        """The likeliest networks within derive.flops, at most `count`, by their likeliest layouts.

        Raises:
            ValueError: none of the 100,000 likeliest does.
        """
        if fitting := self._fitting(count):
            return fitting
        raise ValueError(
            f"{self.method}: none of the likeliest layouts (up to {_LOOKED_AT:,}) costs at most "
            f"derive.flops {self.request.config.flops:.4g}; give a larger one"
        )

    def start(self) -> Choice:
        """The likeliest layout that costs no more than derive.flops, or else the cheapest.

        Where alpha did not learn all layouts are equally likely, and the first 100,000 alike.

        Raises:
            ValueError: not even the cheapest does.
        """
        if fitting := self._fitting(1):
            return fitting[0]
        alike = [(k,) * self.request.slots for k in range(len(self.request.candidates))]
        cheapest = min(alike, key=self.flops)
        if self.allowed(cheapest):
            return cheapest
        raise ValueError(
            f"{self.method}: the cheapest layout costs {self.flops(cheapest):.4g} FLOPs "
            f"per token, derive.flops is {self.request.config.flops:.4g}; give a larger one"
        )

    def _fitting(self, count: int) -> list[Choice]:
        looked_at = min(count, _LOOKED_AT)
        while True:
            best = likeliest(self.searched.log_pi_LC, looked_at)
            allowed = (choice for _, choice in best if self.allowed(choice))
            fitting = [*islice(self.request.networks.first_forms(allowed), count)]
            if len(fitting) == count or len(best) < looked_at or looked_at == _LOOKED_AT:
                return fitting
            looked_at = min(10 * looked_at, _LOOKED_AT)

    def derived(self, words: str) -> Derived:
        """The best layout of all."""
        (choice,) = self.best(1)
        best = self.considered[choice]
        count = len(self.considered)
        self.request.say(
            f"{self.method}: {count} layouts scored, best {best.score.nats_per_token:.4f} nats: "
            f"{layout_letters(best.layout)}"
        )
        evidence = self.searched.evidence(
            f"{self.method}: best of {count} by the SuperNet's weights, {words} "
            f"{self.searched.words}"
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
