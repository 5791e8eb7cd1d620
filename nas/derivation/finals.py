"""The best of what rules and a search propose, all of it trained in full.

See `nas.probing.finals` for the method; here it meets an experiment's layouts and budget.
"""

from math import inf

from model import Evidence, Layout
from nas.derivation.base import Derived, Expected, NoLayout, Request, Tried
from nas.derivation.from_search import beam, top_k
from nas.derivation.space import LayoutSpace, layout_space
from nas.derivation.trained import (
    beside_the_best_rule,
    names_of_rules,
    train_until_answer,
    trial_of,
)
from nas.probing.base import Answer, Results
from nas.probing.finals import Finals


def finals(request: Request) -> Derived:
    """Train the rules' networks, and a search's best ones, in full; the best of two seeds answers.

    Rules: attention first, spread and early, with every number of attention blocks and as many
    dense ones as the limits allow. Where a search was made, the `derive.top` networks that `top_k`
    scores are trained too. Trainings that are there already are not made again.

    Raises:
        NoLayout: no network keeps the limits.
        ValueError: no rule is within them, and there is no search.
    """
    config = request.config.probes
    candidates = layout_space(request, _proposals(request))
    method = Finals(config.finalists, tuple(range(1, config.final_seeds + 1)))
    named = method.named(candidates.space)
    if not named:
        raise NoLayout(
            "finals: no rule of attention and dense is among the candidates and within "
            "derive.budget, and there is no search that proposes others; give a larger budget, or "
            "search first"
        )
    results, answer = train_until_answer(
        request,
        candidates,
        method,
        lambda results, step: (
            f"finals: the best of them again; trainings: {len(step)}"
            if results
            else f"finals: networks of rules and searches, at full length: {len(step)}"
        ),
    )
    words = (
        f"finals: best of {len(named)} networks of rules and searches by {len(results)} trainings "
        f"of full length; {beside_the_best_rule(candidates, answer)}"
    )
    ranked = tuple(candidates.layouts[number] for number in answer.finalists)
    return Derived(
        layout=ranked[0],
        evidence=Evidence(method=words),
        ranked=ranked,
        tried=_tried(method, candidates, results, answer),
        front=_front(method, candidates, results),
    )


def _proposals(request: Request) -> list[Layout]:
    """What a search scores best within the limits, where one was made; the best first."""
    if not request.trajectories:
        return []
    scored = (top_k if request.alpha_learned else beam)(request).ranked
    return [*scored[: request.config.top]]


def _tried(
    method: Finals, candidates: LayoutSpace, results: Results, answer: Answer
) -> tuple[Tried, ...]:
    expected, rule_of = method.expected(results), names_of_rules(candidates)
    flops_N = candidates.space.flops_N
    return tuple(
        Tried(
            trial_of(candidates, training),
            nats,
            *expected[training.network],
            rule_of.get(training.network, ""),
            float(flops_N[training.network]),
            is_answer=training.network == answer.network,
        )
        for training, nats in results.items()
    )


def _front(method: Finals, candidates: LayoutSpace, results: Results) -> tuple[Expected, ...]:
    """The networks that no cheaper one of those trained is as good as, the cheapest first."""
    rows = [
        Expected(candidates.layouts[number], float(candidates.space.flops_N[number]), *expected)
        for number, expected in method.expected(results).items()
    ]
    front, least = list[Expected](), inf
    for row in sorted(rows, key=lambda row: (row.flops_per_token, row.nats)):
        if row.nats < least:
            front.append(row)
            least = row.nats
    return tuple(front)
