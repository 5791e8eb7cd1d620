"""The networks of largest additive score within budgets, in order, without looking at all layouts.

L slots   C candidates   G groups of candidates of equal costs   J budgets   N vectors of counts
"""

import heapq
from collections.abc import Iterator, Sequence
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model import Network
from nas.costs.budget import Limit
from nas.derivation.base import Choice, Networks

Array = NDArray[np.float64]
Ranked = tuple[float, Choice]
# Scores are taken in multiples of this: their sums are exact, so that layouts are equal where they
# should be and not as rounding has it.
STEP = 2.0**-32
_MOST_STATES = 20_000_000
_MOST_LOOKED_AT = 2_000_000


def networks_by_score(
    score_LC: Array, networks: Networks, limits: Sequence[Limit] = ()
) -> Iterator[Ranked]:
    """Yield every network that keeps the limits, the largest sum of its slots' scores first.

    Of a network the layout of largest sum counts; of equal layouts those come first whose first
    difference is the lower index. The search is A*: what the rest of the slots can add at most is
    known exactly from how often each candidate was taken, because all slots cost alike. That takes
    as many states as there are vectors of counts, however many budgets there are. Beginnings of
    layouts that are one network so far are one state.

    Raises:
        ValueError: there are too many candidates of different costs for so many slots.
    """
    score_LC = np.round(score_LC / STEP) * STEP
    additive = [limit for limit in limits if limit.cost.additive]
    others = [limit for limit in limits if not limit.cost.additive]
    bound = _Bound(score_LC, networks, additive)
    # Where slots share weights the place matters, also of what adds nothing.
    is_tied = networks.tie_blocks is not None
    seen = set[tuple[Any, ...]]()
    known = set[Network]()
    waiting: list[tuple[float, Choice, float, int]] = []

    def wait(choice: Choice, score: float, code: int) -> None:
        most = score + bound.rest(len(choice), code)
        if most > -np.inf:
            heapq.heappush(waiting, (-most, choice, score, code))

    wait((), 0.0, 0)
    looked_at = 0
    while waiting:
        _, choice, score, code = heapq.heappop(waiting)
        # The code too: of candidates that compute the same one may be dearer and leave less room.
        state = (len(choice), code, choice if is_tied else networks.of(choice).blocks)
        if state in seen:
            continue
        seen.add(state)
        if len(choice) == len(score_LC):
            # Where slots share weights, layouts that began differently may be one network.
            network = networks.of(choice)
            fits = all(limit.holds(networks.layout(choice)) for limit in others)
            if fits and network not in known:
                known.add(network)
                yield score, choice
            continue
        looked_at += 1
        if others and looked_at > _MOST_LOOKED_AT:
            raise ValueError(
                f"budget: no layout found among {_MOST_LOOKED_AT:,} beginnings; with "
                "model.tie_blocks a budget of parameters does not add up over the blocks: give a "
                "larger one, or fewer blocks"
            )
        for k, value in enumerate(score_LC[len(choice)]):
            wait((*choice, k), score + float(value), code + bound.step_C[k])


class _Bound:
    """What the slots behind a beginning can add to its score at most, so that the limits hold.

    A beginning is known by its code: how many of its slots took each group, as digits.
    """

    def __init__(self, score_LC: Array, networks: Networks, limits: Sequence[Limit]) -> None:
        slots, labels = len(score_LC), [c.label for c in networks.candidates]
        columns = [tuple(limit.cost.by_label[label] for limit in limits) for label in labels]
        groups = list(dict.fromkeys(columns))
        self._group_C = [groups.index(column) for column in columns]
        states = comb(slots + len(groups), len(groups))
        self._base = slots + 1
        # A code has a digit for every group but the first, in 63 bits.
        if states > _MOST_STATES or self._base ** (len(groups) - 1) >= 2**63:
            raise ValueError(
                f"budget: {len(groups)} candidates of different costs in {slots} blocks make "
                f"{states:,} states, at most {_MOST_STATES:,} are looked at; take fewer candidates"
            )
        self.step_C = [self._base**group if group else 0 for group in self._group_C]
        best_LG = np.stack(
            [
                score_LC[:, np.array(self._group_C) == group].max(axis=1)
                for group in range(len(groups))
            ],
            axis=1,
        )
        self._codes, self._values = self._tables(best_LG, np.array(groups), limits)

    def rest(self, slots: int, code: int) -> float:
        """For a beginning of so many slots; -inf where no layout so begun keeps the limits."""
        place = int(np.searchsorted(self._codes[slots], code))
        return float(self._values[slots][place])

    def _tables(
        self, best_LG: Array, cost_GJ: Array, limits: Sequence[Limit]
    ) -> tuple[list[NDArray[np.int64]], list[Array]]:
        slots, groups = best_LG.shape
        step_G = [self._base**group if group else 0 for group in range(groups)]
        codes = [np.zeros(1, dtype=np.int64)]
        for _ in range(slots):
            codes.append(np.unique(np.concatenate([codes[-1] + step for step in step_G])))
        count_NG = np.stack([codes[-1] // max(step, 1) % self._base for step in step_G], axis=1)
        # Group 0 has no digit: it is what is left.
        count_NG[:, 0] = slots - count_NG[:, 1:].sum(axis=1)
        keeps_N = np.ones(len(count_NG), dtype=bool)
        for limit, cost_G in zip(limits, cost_GJ.T, strict=True):
            keeps_N &= limit.allows(limit.cost.rest + count_NG @ cost_G)
        values = [np.where(keeps_N, 0.0, -np.inf)]
        for slot in reversed(range(slots)):
            after = [np.searchsorted(codes[slot + 1], codes[slot] + step) for step in step_G]
            options = [best_LG[slot, g] + values[0][place] for g, place in enumerate(after)]
            values.insert(0, np.max(options, axis=0))
        return codes, values
