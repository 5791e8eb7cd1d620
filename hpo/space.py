"""The space of a sweep: which keys of the experiment a trial sets, to what, and when."""

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import RandomSampler
from optuna.trial import Trial

from hpo.config import ParameterConfig, as_param

# The place below `sweep.space`, and what is wrong there.
Fault = tuple[tuple[str, ...], str]
MOST_POINTS = 10_000
_TRIES = 30
# Numbers that differ by such a part, or by such a part of a step, are one.
_NEAR = 1e-9


class Space:
    """The keys of a sweep with their values and conditions.

    A *value* is what the experiment takes; a *param* is what Optuna stores: the same, but a list or
    mapping is JSON text there. `keys` are dotted, each below those in its `when`.
    """

    def __init__(
        self, parameters: Mapping[str, ParameterConfig], kinds: Mapping[str, type]
    ) -> None:
        """Make the space of a section `sweep.space`.

        `kinds` is `int` or `float` for the keys at which the experiment takes only such numbers
        (with `float` also integers).
        """
        self._parameters = dict(parameters)
        self._kinds = dict(kinds)
        self.keys = tuple(parameters)
        self.distributions: dict[str, BaseDistribution] = {
            key: self._distribution(key) for key in self.keys
        }

    def faults(self) -> list[Fault]:
        """All that makes the space impossible, whatever the experiment says."""
        faults: list[Fault] = []
        for key, parameter in self._parameters.items():
            for option in ("low", "high", "step"):
                value = getattr(parameter, option)
                if self._kinds.get(key) is int and isinstance(value, float):
                    words = f"expected an integer, as {key} takes, found {value}"
                    faults.append(((key, option), words))
            for parent, wanted in parameter.when.items():
                if why := self._unmet(key, parent, wanted):
                    faults.append(((key, "when", parent), why))
        source = random.Random(0)
        return faults or [
            ((key, "when"), "never holds: it excludes itself")
            for key in self.keys
            if not any(key in self.draw(source, self.needs(key, source)) for _ in range(_TRIES))
        ]

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """The values of the active keys as the study's sampler suggests them."""
        return self._walk(lambda key: self._decode(key, _ask(trial, key, self.distributions[key])))

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a trial's stored params."""
        return self._walk(lambda key: self._typed(key, self._decode(key, params[key])))

    def params(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Params that Optuna stores for the values of the active keys; the others are left out."""
        return self._walk(lambda key: as_param(self._typed(key, values[key])), values)

    def inactive(self, values: Mapping[str, Any]) -> list[str]:
        """The keys whose conditions do not hold."""
        return [key for key in self.keys if not self._is_active(key, values)]

    def choices(self, key: str) -> list[Any] | None:
        """The values of a key that has choices."""
        choices = self._parameters[key].choices
        return None if choices is None else [self._typed(key, choice) for choice in choices]

    def describe(self, key: str) -> str:
        """The values of a key in words."""
        choices, parameter = self.choices(key), self._parameters[key]
        if choices is not None:
            return ", ".join(map(_words, choices))
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
        sampler, fixed = RandomSampler(seed=source.getrandbits(32)), fixed or {}
        unused: Any = None  # the study and the trial, which this sampler does not look at

        def value_of(key: str) -> Any:
            if key in fixed:
                return fixed[key]
            drawn = sampler.sample_independent(unused, unused, key, self.distributions[key])
            return self._decode(key, drawn)

        return self._walk(value_of)

    def grid(self) -> list[dict[str, Any]]:
        """The params of all combinations, the last key moving fastest.

        Raises:
            ValueError: there are too many combinations.
        """
        points: list[dict[str, Any]] = []
        for values in self._combinations(0, {}):
            if len(points) == MOST_POINTS:
                raise ValueError(f"the grid has more than {MOST_POINTS} points; use larger steps")
            points.append(self.params(values))
        return points

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

    def _all_values(self, key: str) -> Iterator[Any]:
        choices, of = self.choices(key), self.distributions[key]
        if choices is not None:
            yield from choices
            return
        assert isinstance(of, IntDistribution | FloatDistribution)
        assert of.step is not None, "a grid is refused where a range is continuous"
        for number in range(round((of.high - of.low) / of.step) + 1):
            yield min(of.low + number * of.step, of.high)

    def _walk(
        self, value_of: Callable[[str], Any], known: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The value of each active key, parents first; keys are active by what is `known`."""
        values: dict[str, Any] = {}
        for key in self.keys:
            if self._is_active(key, values if known is None else known):
                values[key] = value_of(key)
        return values

    def _is_active(self, key: str, values: Mapping[str, Any]) -> bool:
        """Say if a key's parents have the values that it wants; one that is off has none."""
        return all(
            parent in values
            and self._is_active(parent, values)
            and any(self.is_same(parent, values[parent], value) for value in _list(wanted))
            for parent, wanted in self._parameters[key].when.items()
        )

    def needs(self, key: str, source: random.Random) -> dict[str, Any]:
        """Values of other keys with which a key is active, drawn from those in its `when`."""
        fixed: dict[str, Any] = {}
        for parent, wanted in self._parameters[key].when.items():
            value = self._typed(parent, source.choice(_list(wanted)))
            fixed |= {**self.needs(parent, source), parent: value}
        return fixed

    def _unmet(self, key: str, parent: str, wanted: Any) -> str | None:
        """Reason why a condition can never be tested or hold; None where it can."""
        above = self.keys[: self.keys.index(key)]
        if parent not in above:
            if parent in self.keys:
                return "must stand above it in sweep.space"
            others = [other for other in self.keys if other != key]
            near = get_close_matches(parent, others, n=1, cutoff=0.85)
            remedy = f"did you mean '{near[0]}'?" if near else "sweep it as well, or leave it out"
            return f"is not in sweep.space; {remedy}"
        if self.is_continuous(parent):
            return f"can be any number, so it hardly ever is {_words(wanted)}; give it choices"
        for value in _list(wanted):
            if not self.holds(parent, value):
                lists = any(isinstance(one, list | tuple) for one in self.choices(parent) or ())
                remedy = "; put a list that is a choice into brackets, [[a, b]]" if lists else ""
                return f"is never {_words(value)} in this space{remedy}"
        return None

    def _distribution(self, key: str) -> BaseDistribution:
        parameter = self._parameters[key]
        if parameter.choices is not None:
            return CategoricalDistribution([as_param(c) for c in self.choices(key) or []])
        low, high, step, log = parameter.low, parameter.high, parameter.step, parameter.log
        assert low is not None
        assert high is not None
        if self._kinds.get(key) is int:
            return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
        return FloatDistribution(float(low), float(high), log=log, step=step)

    def _typed(self, key: str, value: Any) -> Any:
        """A number as the experiment has it: 1 is 1.0 where it takes any number."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return float(value) if whole and self._kinds.get(key) is float else value

    def _decode(self, key: str, param: Any) -> Any:
        for choice in self.choices(key) or []:
            if _same(as_param(choice), param):
                return choice
        return param


def _ask(trial: Trial, key: str, of: BaseDistribution) -> Any:
    if isinstance(of, CategoricalDistribution):
        return trial.suggest_categorical(key, of.choices)
    if isinstance(of, IntDistribution):
        return trial.suggest_int(key, of.low, of.high, step=of.step, log=of.log)
    assert isinstance(of, FloatDistribution)
    return trial.suggest_float(key, of.low, of.high, step=of.step, log=of.log)


def _list(wanted: Any) -> list[Any]:
    """One value or several of a condition."""
    return wanted if isinstance(wanted, list) else [wanted]


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _same(one: Any, other: Any, step: float = 0.0) -> bool:
    if isinstance(one, float) and isinstance(other, int | float) and not isinstance(other, bool):
        return math.isclose(one, other, rel_tol=_NEAR, abs_tol=_NEAR * step)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
