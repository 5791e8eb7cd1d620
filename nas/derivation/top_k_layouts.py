"""The likeliest layouts, exactly.

L slots, C candidates, K layouts.
"""

import numpy as np
from numpy.typing import NDArray

# log pi is taken in multiples of this: their sums are exact, so that layouts are equal where they
# should be and not as rounding has it.
STEP = 2.0**-32


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
