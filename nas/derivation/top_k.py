"""The K likeliest networks, and of them the best by the SuperNet's weights."""

from nas.derivation.base import Derived, Request
from nas.derivation.scored import Scores
from nas.derivation.searched import check_learned, read_searches


def top_k(request: Request) -> Derived:
    """Score the `derive.top` networks of largest product of pi within derive.flops; take the best.

    A network is as likely as the likeliest of its layouts, which is the one that is scored.

    Raises:
        ValueError: there is no finished search, its alpha did not learn, its weights are not
            there, or nothing that is likely costs at most derive.flops.
    """
    check_learned(request, "top_k")
    scores = Scores(request, read_searches(request, "top_k"), request.config.top, "top_k")
    for choice in scores.likeliest(request.config.top):
        scores.add(choice)
    return scores.derived("the likeliest by")
