"""The K likeliest layouts, and of them the best by the SuperNet's weights."""

from nas.derivation.base import Derived, Request
from nas.derivation.scored import Scores
from nas.derivation.searched import read_searches
from nas.derivation.top_k_layouts import likeliest


def top_k(request: Request) -> Derived:
    """Score the `derive.top` layouts of largest product of pi; take the best.

    Raises:
        ValueError: there is no finished search, or its weights are not there.
    """
    searched = read_searches(request, "top_k")
    layouts = likeliest(searched.log_pi_LC, request.config.top)
    scores = Scores(request, searched, len(layouts), "top_k")
    for _, choice in layouts:
        scores.add(choice)
    return scores.derived("the likeliest by")
