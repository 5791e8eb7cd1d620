"""Whether the space of a sweep is right, found out the slow way: by trials of the whole file."""

import copy
import json
import random
from typing import Any

from nas.derivation import DERIVATIONS
from pipeline.experiment import Experiment

NEVER = ("run.", "compare.", "sweep.")
SWEPT = ("run.precision", "run.micro_batches")
ASIDE = object()


def fits(value: dict[str, Any]) -> bool:
    """Whether values are an experiment."""
    try:
        found = Experiment.model_validate_json(json.dumps(value), strict=True)
    except ValueError:
        return False
    return {found.derive.method, *found.compare.opponents} <= set(DERIVATIONS)


def put(value: dict[str, Any], key: str, new: Any) -> bool:
    """Set a dotted key, or take it out; whether there is a place for it."""
    *above, last = key.split(".")
    for name in above:
        if value.get(name) is None:
            value[name] = {}
        value = value[name]
        if not isinstance(value, dict):
            return False
    if new is ASIDE:
        value.pop(last, None)
    else:
        value[last] = new
    return True


def space_is_right(value: dict[str, Any]) -> bool:
    """Whether no trial of an otherwise valid file would be refused, as far as 300 trials tell."""
    sweep = value.get("sweep")
    if sweep is None:
        return True
    bare = {name: inner for name, inner in value.items() if name != "sweep"}
    space, settings = sweep["space"], sweep.get("set", {})
    for key in (*space, *settings):
        seen = key in settings and key.startswith("run.") and key != "run.seed"
        if key in Experiment.model_fields or (
            key.startswith(NEVER) and key not in SWEPT and not seen
        ):
            return False
        if any(key.startswith(f"{other}.") for other in (*space, *settings)):
            return False
    if set(space) & set(settings):
        return False
    allowed = {key: _allowed(bare, key, space[key]) for key in space}
    for parameter in space.values():
        for parent, wanted in parameter.get("when", {}).items():
            values = wanted if isinstance(wanted, list) else [wanted]
            if parent not in space or any(each not in allowed[parent] for each in values):
                return False
    draw = random.Random(1)
    return all(_trial(bare, space, settings, allowed, draw) for _ in range(300))


def _allowed(bare: dict[str, Any], key: str, parameter: dict[str, Any]) -> list[Any]:
    """The choices; of a range its rungs, or without rungs some numbers in it."""
    if parameter.get("choices") is not None:
        return list(parameter["choices"])
    low, high, step = parameter["low"], parameter["high"], parameter.get("step")
    if step is None:
        middle = copy.deepcopy(bare)
        whole = put(middle, key, (low + high) / 2 + 0.25) and not fits(middle)
        if not whole or isinstance(low + high, float):
            return [low, high, low + (high - low) / 3, low + (high - low) / 1.7]
        step = 1
    return [low + number * step for number in range(round((high - low) / step) + 1)]


def _trial(
    bare: dict[str, Any],
    space: dict[str, Any],
    settings: dict[str, Any],
    allowed: dict[str, list[Any]],
    draw: random.Random,
) -> bool:
    """Whether one random trial is an experiment; False also where conditions go in a circle."""
    trial, chosen = copy.deepcopy(bare), dict.fromkeys(space, None)
    left = list(space)
    for _ in space:
        ready = [k for k in left if not set(space[k].get("when", {})) & set(left)]
        for key in ready:
            wanted = space[key].get("when", {})
            on = all(
                chosen[p] is not ASIDE and chosen[p] in (w if isinstance(w, list) else [w])
                for p, w in wanted.items()
            )
            chosen[key] = draw.choice(allowed[key]) if on else ASIDE
            left.remove(key)
    if left:
        return False
    return all(put(trial, key, new) for key, new in {**settings, **chosen}.items()) and fits(trial)
