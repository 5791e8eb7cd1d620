"""What derivations that train layouts share: trainings until there is an answer, and its words."""

import math
from collections.abc import Callable, Sequence

from model import layout_letters
from nas.derivation.base import Request, Trial
from nas.derivation.space import LayoutSpace
from nas.probing.base import Answer, Method, Results, Training
from training.endings import Diverged

# What is said before trainings begin, of what is known so far and of what comes.
Progress = Callable[[Results, Sequence[Training]], str]


def train_until_answer(
    request: Request, candidates: LayoutSpace, method: Method, progress: Progress
) -> tuple[dict[Training, float], Answer]:
    """All trainings that a method asked for, with their nats, and its answer.

    Diverged where all trainings of one length are: nothing could be chosen by them.
    """
    assert request.train is not None
    results: dict[Training, float] = {}
    while not isinstance(step := method(candidates.space, results), Answer):
        request.say(progress(results, step))
        trials = [trial_of(candidates, training) for training in step]
        results |= zip(step, request.train(trials), strict=True)
        _check_some_are_left(results)
    return results, step


def _check_some_are_left(results: Results) -> None:
    for length in ("half", "full"):
        nats = [nats for training, nats in results.items() if training.length == length]
        if nats and min(nats) == math.inf:
            raise Diverged(
                f"all {len(nats)} trainings of {length} length diverged; lower "
                "retrain.optimiser.lr or raise retrain.optimiser.warmup_steps, in another --run "
                "directory"
            )


def trial_of(candidates: LayoutSpace, training: Training) -> Trial:
    """A training of a number of the space as one of its layout."""
    layout = candidates.layouts[training.network]
    return Trial(layout, training.length == "half", training.seed)


def names_of_rules(candidates: LayoutSpace) -> dict[int, str]:
    """The first rule that names a network, by its number."""
    return {number: name for name, number in reversed([*candidates.space.rules.items()])}


def beside_the_best_rule(candidates: LayoutSpace, answer: Answer) -> str:
    """How the answer stands beside the best rule, or that a rule is the answer."""
    if answer.best_rule is None:
        return "no rule is within reach"
    name = names_of_rules(candidates)[answer.best_rule]
    if answer.network == answer.best_rule:
        return f"the rule is the answer: {name}"
    lead, sd = answer.lead
    rule = f"{layout_letters(candidates.layouts[answer.best_rule])} ({name})"
    return f"{lead:.4f} nats (sd {sd:.4f}) better than the best rule, {rule}"
