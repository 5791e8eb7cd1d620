"""What `when` says about the keys of a space, and what is wrong with it."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from nas.sweep.config import ParameterConfig

# The key of the space, the place below it, what is wrong there.
Fault = tuple[str, tuple[str, ...], str]
Parameters = Mapping[str, ParameterConfig]


def space_faults(parameters: Parameters, kinds: Mapping[str, type]) -> list[Fault]:
    """All that makes a space impossible, whatever the experiment says."""
    faults = [fault for key in parameters for fault in _range_faults(key, parameters[key], kinds)]
    for key, parameter in parameters.items():
        for parent, wanted in parameter.when.items():
            if why := _unmet(parameters, kinds, key, parent, wanted):
                faults.append((key, ("when", parent), why))
    if not faults and (cycle := _cycle(parameters)):
        faults.append(
            (
                cycle[0],
                ("when", [*cycle, *cycle][1]),
                f"{' -> '.join([*cycle, cycle[0]])} is a circle",
            )
        )
    return faults


def by_parents(parameters: Parameters) -> tuple[str, ...]:
    """The keys in the order of the file, but each after the keys in its `when`."""
    order: dict[str, None] = {}

    def put(key: str) -> None:
        for parent in parameters[key].when:
            put(parent)
        order[key] = None

    for key in parameters:
        put(key)
    return tuple(order)


def _range_faults(
    key: str, parameter: ParameterConfig, kinds: Mapping[str, type]
) -> Iterator[Fault]:
    if kinds.get(key) is not int:
        return
    for option in ("low", "high", "step"):
        found = getattr(parameter, option)
        if isinstance(found, float):
            yield key, (option,), f"expected an integer, as {key} takes, found {found}"


def _unmet(
    parameters: Parameters, kinds: Mapping[str, type], key: str, parent: str, wanted: Any
) -> str | None:
    """Why a condition can never be tested or hold."""
    if parent not in parameters:
        others = [other for other in parameters if other != key]
        near = get_close_matches(parent, others, n=1, cutoff=0.85)
        remedy = f"did you mean '{near[0]}'?" if near else "sweep it as well, or leave it out"
        return f"is not in sweep.space; {remedy}"
    of = parameters[parent]
    if of.choices is None and kinds.get(parent) is not int and of.step is None:
        return f"can be any number, so it hardly ever is {_words(wanted)}; give it choices"
    for value in wanted if isinstance(wanted, list) else [wanted]:
        if not _can_be(of, value):
            return f"is never {_words(value)} in this space"
    return None


def _can_be(parameter: ParameterConfig, value: Any) -> bool:
    if parameter.choices is not None:
        return value in parameter.choices
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    assert parameter.low is not None
    assert parameter.high is not None
    if not parameter.low <= value <= parameter.high:
        return False
    step = 1 if parameter.step is None else parameter.step
    rungs = (value - parameter.low) / step
    return abs(rungs - round(rungs)) < 1e-9


def _cycle(parameters: Parameters) -> list[str] | None:
    """Keys of which each waits for the next, and the last for the first."""
    clear: set[str] = set()

    def walk(key: str, path: list[str]) -> list[str] | None:
        if key in path:
            return path[path.index(key) :]
        if key in clear:
            return None
        for parent in parameters[key].when:
            if found := walk(parent, [*path, key]):
                return found
        clear.add(key)
        return None

    for key in parameters:
        if found := walk(key, []):
            return found
    return None


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
