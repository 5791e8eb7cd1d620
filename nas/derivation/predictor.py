"""The layout that short trainings and a regression on them find, judged by full ones.

See `nas.probing.predictor` for the method; here it meets an experiment's layouts and budget.
"""

from collections.abc import Sequence
from math import inf

import numpy as np

from model import Evidence, Layout, layout_letters
from nas.derivation.base import Derived, Expected, Request, Tried
from nas.derivation.from_search import argmax, beam, top_k
from nas.derivation.space import LayoutSpace, layout_space
from nas.derivation.trained import (
    beside_the_best_rule,
    names_of_rules,
    train_until_answer,
    trial_of,
)
from nas.probing.base import Answer, Results, Training
from nas.probing.features import features_of
from nas.probing.predictor import CAP_PER_KIND, Predictor


def predictor(request: Request) -> Derived:
    """Train a few layouts shortly, choose what to train next by a regression, judge the best.

    All networks within the limits are candidates; where a search was made, what it chooses is
    probed too. Trainings that are there already are not made again.

    Raises:
        NoLayout: no network keeps the limits.
        ValueError: `derive.probes.most` is less than the first design.
    """
    candidates = layout_space(request, _proposals(request))
    method = _method(request, candidates)
    results, answer = train_until_answer(
        request,
        candidates,
        method,
        lambda results, step: _progress(method, candidates, results, step),
    )
    ranked = tuple(candidates.layouts[number] for number in answer.finalists)
    return Derived(
        layout=ranked[0],
        evidence=Evidence(method=_words(candidates, results, answer)),
        ranked=ranked,
        tried=_tried(method, candidates, results, answer),
        front=_front(method, candidates, results, answer),
    )


def _proposals(request: Request) -> list[Layout]:
    """What a search chooses within the limits, where one was made."""
    if not request.trajectories:
        return []
    methods = (argmax, top_k) if request.alpha_learned else (beam,)
    return [method(request).layout for method in methods]


def _method(request: Request, candidates: LayoutSpace) -> Predictor:
    config = request.config.probes
    further = set(candidates.space.kinds) - {candidates.attention, candidates.dense}
    most = Predictor.cap + CAP_PER_KIND * len(further) if config.most == "auto" else config.most
    method = Predictor(
        cap=most,
        margin_nats=config.margin_nats,
        least_chance=config.least_chance,
        finalists=config.finalists,
        final_seeds=tuple(range(1, config.final_seeds + 1)),
    )
    features = features_of(candidates.space, method.priors)
    design = method.first_design(candidates.space, features)
    if most < len(design):
        raise ValueError(
            f"derive.probes.most: {most} probes are less than the first design has "
            f"({len(design)}: rules of several numbers of attention blocks and of further kinds, "
            f"and what a search proposes); give {len(design)} or more"
        )
    return method


def _progress(
    method: Predictor, candidates: LayoutSpace, results: Results, step: Sequence[Training]
) -> str:
    """What is known so far, and what is trained now."""
    space, probes = candidates.space, [t.network for t in results if t.length == "half"]
    if step[0].length == "full":
        count = len({training.network for training in step})
        begin = f"{len(probes)} probes done; finals: {count} layouts at full length"
    else:
        begin = f"probes {len(probes) + 1} to {len(probes) + len(step)} of at most {method.cap}"
    begin = f"predictor: {begin}"
    if not probes:
        return f"{begin}, the first design, of {len(space):,} networks"
    now = method.expected(features_of(space, method.priors), results)
    best = min(probes, key=lambda number: now.mean_N[number])
    chance = f"{method.chance(now, probes):.0%}" if len(probes) < len(space) else "0%"
    return (
        f"{begin}; best so far {layout_letters(candidates.layouts[best])}; largest chance of "
        f"another one that is better by {method.margin_nats:g} nats: {chance}"
    )


def _words(candidates: LayoutSpace, results: Results, answer: Answer) -> str:
    halves = sum(training.length == "half" for training in results)
    return (
        f"predictor: best of {len(candidates.space):,} networks by {halves} trainings of half and "
        f"{len(results) - halves} of full length; {beside_the_best_rule(candidates, answer)}"
    )


def _tried(
    method: Predictor, candidates: LayoutSpace, results: Results, answer: Answer
) -> tuple[Tried, ...]:
    space = candidates.space
    features = features_of(space, method.priors)
    now = method.expected(features, results)
    probes = {training: nats for training, nats in results.items() if training.length == "half"}
    before = method.expected(features, probes)
    sd_N = now.sd_N
    rule_of = names_of_rules(candidates)
    return tuple(
        Tried(
            trial_of(candidates, training),
            nats,
            float(now.mean_N[training.network]),
            float(sd_N[training.network]),
            rule_of.get(training.network, ""),
            float(space.flops_N[training.network]),
            float(before.mean_N[training.network]) if training.length == "full" else None,
            training.network == answer.network,
        )
        for training, nats in results.items()
    )


def _front(
    method: Predictor, candidates: LayoutSpace, results: Results, answer: Answer
) -> tuple[Expected, ...]:
    """The networks that no cheaper one is expected to beat, the cheapest first."""
    space = candidates.space
    now = method.expected(features_of(space, method.priors), results)
    sd_N = now.sd_beside_N(answer.network)
    front, least = list[Expected](), inf
    for number in np.lexsort((now.mean_N, space.flops_N)).tolist():
        if (nats := float(now.mean_N[number])) < least:
            flops, layout = float(space.flops_N[number]), candidates.layouts[number]
            front.append(Expected(layout, flops, nats, float(sd_N[number])))
            least = nats
    return tuple(front)
