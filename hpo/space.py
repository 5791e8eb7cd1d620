"""The space of a sweep: which keys of the experiment a trial sets, to what, and when."""

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import Trial

from hpo.config import ParameterConfig, as_param

# The key of the space, the place below it, what is wrong there.
Fault = tuple[str, tuple[str, ...], str]
Parameters = Mapping[str, ParameterConfig]
MOST_POINTS = 10_000
# Numbers that differ by such a part, or by such a part of a step, are one.
_NEAR = 1e-9


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
        value = getattr(parameter, option)
        if isinstance(value, float):
            yield key, (option,), f"expected an integer, as {key} takes, found {value}"


def _unmet(
    parameters: Parameters, kinds: Mapping[str, type], key: str, parent: str, wanted: Any
) -> str | None:
    """Reason why a condition can never be tested or hold; None where it can."""
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
            lists = any(isinstance(choice, list | tuple) for choice in of.choices or ())
            remedy = "; put a list that is a choice into brackets, [[a, b]]" if lists else ""
            return f"is never {_words(value)} in this space{remedy}"
    return None


def _can_be(parameter: ParameterConfig, value: Any) -> bool:
    if parameter.choices is not None:
        return any(_same(value, choice) for choice in parameter.choices)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    assert parameter.low is not None
    assert parameter.high is not None
    if not parameter.low <= value <= parameter.high:
        return False
    step = 1 if parameter.step is None else parameter.step
    rungs = (value - parameter.low) / step
    return abs(rungs - round(rungs)) < _NEAR


def _cycle(parameters: Parameters) -> list[str] | None:
    """Keys of which each waits for the next, and the last for the first."""
    clear: set[str] = set()

    def walk(key: str, path: list[str]) -> list[str] | None:
        if key in path:
            return path[path.index(key) :]
        if key in clear:
            return None
        for parent in parameters[key].when:
            if cycle := walk(parent, [*path, key]):
                return cycle
        clear.add(key)
        return None

    for key in parameters:
        if cycle := walk(key, []):
            return cycle
    return None


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Space:
    """The keys of a sweep with their values and conditions.

    A *value* is what the experiment takes; a *param* is what Optuna stores: the same, but a list or
    mapping is JSON text there. `keys` are dotted, each after those in its `when`.
    """

    def __init__(
        self, parameters: Mapping[str, ParameterConfig], kinds: Mapping[str, type]
    ) -> None:
        """Make the space of a section `sweep.space`.

        `kinds` is `int` or `float` for the keys at which the experiment takes only such numbers
        (with `float` also integers).

        Raises:
            ValueError: a condition that cannot hold, or a range that does not fit its key.
        """
        if faults := space_faults(parameters, kinds):
            raise ValueError("\n".join(f"{'.'.join((key, *at))}: {why}" for key, at, why in faults))
        self._parameters = dict(parameters)
        self._kinds = dict(kinds)
        self.keys: tuple[str, ...] = by_parents(parameters)
        self.distributions: dict[str, BaseDistribution] = {
            key: self._distribution(key) for key in self.keys
        }

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """The values of the active keys as the study's sampler suggests them."""
        return self._walk(lambda key: self._decode(key, self._ask(trial, key)))

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a trial's stored params.

        Raises:
            ValueError: an active key is missing, or has a value outside the space.
        """
        return self._checked(
            {key: self._decode(key, params[key]) for key in self.keys if key in params}
        )

    def params(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Params that Optuna stores for the values of the active keys; the others are left out.

        Raises:
            ValueError: an active key is missing, or has a value outside the space.
        """
        return {key: as_param(value) for key, value in self._checked(values).items()}

    def inactive(self, values: Mapping[str, Any]) -> list[str]:
        """The keys whose conditions do not hold."""
        return [key for key in self.keys if not self._is_active(key, values)]

    def choices(self, key: str) -> list[Any] | None:
        """The values of a key that has choices."""
        choices = self._parameters[key].choices
        return None if choices is None else [self._typed(key, value) for value in choices]

    def describe(self, key: str) -> str:
        """The values of a key in words: `0.05 .. 1.0`, `linear, cosine`."""
        parameter = self._parameters[key]
        if parameter.choices is not None:
            return ", ".join(_words(value) for value in parameter.choices)
        step = "" if parameter.step is None else f" by {parameter.step}"
        return f"{parameter.low} .. {parameter.high}{step}"

    def holds(self, key: str, value: Any) -> bool:
        """Say if a value is one of the key's choices, or in its range."""
        value = self._typed(key, value)
        choices, of = self.choices(key), self.distributions[key]
        if choices is not None:
            return any(_same(value, choice) for choice in choices)
        wanted = int if isinstance(of, IntDistribution) else float
        # Optuna's own test minds the steps as well.
        return type(value) is wanted and bool(of._contains(float(value)))

    def is_same(self, key: str, one: Any, other: Any) -> bool:
        """Say if two values of a key are one: steps of 0.1 may come to 0.30000000000000004."""
        return _same(one, other, self._parameters[key].step or 0.0)

    def is_continuous(self, key: str) -> bool:
        """Say if a key can be any number of a range."""
        of = self.distributions[key]
        return isinstance(of, FloatDistribution) and of.step is None

    def draw(self, source: random.Random, fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Values of the active keys: the fixed ones, else random, each evenly from its own."""
        fixed = {} if fixed is None else fixed
        return self._walk(lambda key: fixed[key] if key in fixed else self._drawn(key, source))

    def needs(self, key: str, source: random.Random) -> dict[str, Any]:
        """Values of other keys with which a key is active, drawn from those in its `when`."""
        fixed: dict[str, Any] = {}
        for parent, wanted in self._parameters[key].when.items():
            value = source.choice(wanted) if isinstance(wanted, list) else wanted
            fixed |= {**self.needs(parent, source), parent: self._typed(parent, value)}
        return fixed

    def grid(self) -> list[dict[str, Any]]:
        """The params of all combinations, the last key moving fastest.

        Raises:
            ValueError: a range has no finite number of values, or there are too many combinations.
        """
        points: list[dict[str, Any]] = []
        for values in self._combinations(0, {}):
            if len(points) == MOST_POINTS:
                raise ValueError(f"the grid has more than {MOST_POINTS} points; use larger steps")
            points.append(self.params(values))
        return points

    def _walk(self, value_of: Callable[[str], Any]) -> dict[str, Any]:
        """The value of each active key, parents first."""
        values: dict[str, Any] = {}
        for key in self.keys:
            if self._is_active(key, values):
                values[key] = value_of(key)
        return values

    def _combinations(self, place: int, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if place == len(self.keys):
            yield values
            return
        key = self.keys[place]
        if not self._is_active(key, values):
            yield from self._combinations(place + 1, values)
            return
        for value in self._all_values(key):
            yield from self._combinations(place + 1, {**values, key: value})

    def _is_active(self, key: str, values: Mapping[str, Any]) -> bool:
        """Say if a key's parents have the values that it wants; one that is off has none."""
        for parent, wanted in self._parameters[key].when.items():
            if parent not in values or not self._is_active(parent, values):
                return False
            wanted_values = wanted if isinstance(wanted, list) else [wanted]
            if not any(self.is_same(parent, values[parent], value) for value in wanted_values):
                return False
        return True

    def _distribution(self, key: str) -> BaseDistribution:
        parameter = self._parameters[key]
        if parameter.choices is not None:
            return CategoricalDistribution([as_param(c) for c in self.choices(key) or []])
        assert parameter.low is not None
        assert parameter.high is not None
        if self._kinds.get(key) is int:
            step = 1 if parameter.step is None else int(parameter.step)
            return IntDistribution(
                int(parameter.low), int(parameter.high), log=parameter.log, step=step
            )
        return FloatDistribution(
            float(parameter.low), float(parameter.high), log=parameter.log, step=parameter.step
        )

    def _ask(self, trial: Trial, key: str) -> Any:
        of = self.distributions[key]
        if isinstance(of, CategoricalDistribution):
            return trial.suggest_categorical(key, of.choices)
        if isinstance(of, IntDistribution):
            return trial.suggest_int(key, of.low, of.high, step=of.step, log=of.log)
        assert isinstance(of, FloatDistribution)
        return trial.suggest_float(key, of.low, of.high, step=of.step, log=of.log)

    def _typed(self, key: str, value: Any) -> Any:
        """A number as the experiment has it: 1 is 1.0 where it takes any number."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return float(value) if whole and self._kinds.get(key) is float else value

    def _checked(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the active keys in the experiment's types."""

        def value_of(key: str) -> Any:
            if key not in values:
                raise ValueError(f"{key}: the trial has no value; its space was another one")
            value = self._typed(key, values[key])
            if not self.holds(key, value):
                raise ValueError(f"{key}: {_words(value)} is not in {self.describe(key)}")
            return value

        return self._walk(value_of)

    def _decode(self, key: str, param: Any) -> Any:
        for choice in self.choices(key) or []:
            if _same(as_param(choice), param):
                return choice
        return param

    def _drawn(self, key: str, source: random.Random) -> Any:
        of = self.distributions[key]
        if isinstance(of, CategoricalDistribution):
            return source.choice(self.choices(key) or [])
        assert isinstance(of, IntDistribution | FloatDistribution)
        if of.step is not None and not of.log:
            if of.single():  # draws nothing
                return self._all_values(key)[0]
            return _rung(of, source.randint(0, round((of.high - of.low) / of.step)))
        if not of.log:
            return source.uniform(of.low, of.high)
        drawn = math.exp(source.uniform(math.log(of.low), math.log(of.high)))
        drawn = min(max(drawn, of.low), of.high)
        return round(drawn) if isinstance(of, IntDistribution) else drawn

    def _all_values(self, key: str) -> Sequence[Any]:
        choices, of = self.choices(key), self.distributions[key]
        if choices is not None:
            return choices
        assert isinstance(of, IntDistribution | FloatDistribution)
        if self.is_continuous(key):
            raise ValueError(
                f"{key}: {self.describe(key)} has no finite number of values; give a step, or "
                "choices"
            )
        assert of.step is not None
        count = round((of.high - of.low) / of.step) + 1
        if count > MOST_POINTS:
            raise ValueError(
                f"{key}: the grid has more than {MOST_POINTS} points; use larger steps"
            )
        return [_rung(of, number) for number in range(count)]


def _rung(of: IntDistribution | FloatDistribution, number: int) -> Any:
    """low, low + step, ... ; the last one is high itself."""
    assert of.step is not None
    return min(of.low + number * of.step, of.high)


def _same(one: Any, other: Any, step: float = 0.0) -> bool:
    if isinstance(one, float) and isinstance(other, int | float) and not isinstance(other, bool):
        return math.isclose(one, other, rel_tol=_NEAR, abs_tol=_NEAR * step)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
