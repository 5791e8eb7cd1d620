"""The space of a sweep: which keys of the experiment a trial sets, to what, and when."""

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
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
from utils.validation import hint

# The place below `sweep.space`, and what is wrong there.
Fault = tuple[tuple[str, ...], str]
MOST_POINTS = 10_000
_TRIES = 30
# Steps of 0.1 may come to 0.30000000000000004, which is 0.3 in an experiment.
_DECIMALS = 12


class Space:
    """The keys of a sweep with their values and conditions.

    A *value* is what the experiment takes; a *param* is what Optuna stores: the same, but a list or
    mapping is JSON text there. `keys` are dotted, each below those in its `when`.
    """

    def __init__(
        self, parameters: Mapping[str, ParameterConfig], integers: Collection[str]
    ) -> None:
        """Make the space of a section `sweep.space`; `integers` are keys that take nothing else."""
        self._parameters = dict(parameters)
        self._integers = integers
        self.keys = tuple(parameters)
        self.distributions = {key: self._distribution(key) for key in self.keys}

    def faults(self) -> list[Fault]:
        """All that makes the space impossible, whatever the experiment says."""
        faults: list[Fault] = []
        for place, (key, parameter) in enumerate(self._parameters.items()):
            for option in ("low", "high", "step"):
                value = getattr(parameter, option)
                if key in self._integers and isinstance(value, float):
                    words = f"expected an integer, as {key} takes, found {value}"
                    faults.append(((key, option), words))
            for parent, wanted in parameter.when.items():
                if why := self._unmet(parent, wanted, self.keys[:place]):
                    faults.append(((key, "when", parent), why))
        return faults

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """The values of the active keys as the study's sampler suggests them."""
        return self._walk(lambda key: self._value(key, _ask(trial, key, self.distributions[key])))

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a trial's stored params."""
        return self._walk(lambda key: self._value(key, params[key]))

    def params(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Params that Optuna stores for the values of the active keys; the others are left out."""
        return {key: as_param(value) for key, value in self._walk(values.__getitem__).items()}

    def inactive(self, values: Mapping[str, Any]) -> list[str]:
        """The keys whose conditions do not hold."""
        active = self._walk(values.get)
        return [key for key in self.keys if key not in active]

    def choices(self, key: str) -> tuple[Any, ...]:
        """The values of a key that has choices; none of a range."""
        return self._parameters[key].choices or ()

    def holds(self, key: str, value: Any) -> bool:
        """Say if a value is one of the key's choices, or in its range."""
        if self._parameters[key].choices is not None:
            return value in self.choices(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # Optuna's own test minds the steps as well.
        return is_number and self.distributions[key]._contains(value)

    def draw(self, source: RandomSampler, fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Values of the active keys: the fixed ones, else random, each evenly from its own."""
        known = fixed or {}
        unused: Any = None  # the study and the trial, which this sampler does not look at

        def value(key: str) -> Any:
            if key in known:
                return known[key]
            of = self.distributions[key]
            return self._value(key, source.sample_independent(unused, unused, key, of))

        return self._walk(value)

    def edges(self, source: RandomSampler) -> Iterator[dict[str, Any]]:
        """A draw with each end of each range and with each choice."""
        for key, parameter in self._parameters.items():
            draws = (self.draw(source) for _ in range(_TRIES))
            around = next((draw for draw in draws if key in draw), {})
            for value in parameter.choices or (parameter.low, parameter.high):
                yield self.draw(source, {**around, key: value})

    def grid(self) -> list[dict[str, Any]]:
        """The params of all combinations, the last key moving fastest.

        Raises:
            ValueError: a key has no finite number of values, or there are too many combinations.
        """
        values = [self._all_values(key) for key in self.keys]
        if (count := math.prod(map(len, values))) > MOST_POINTS:
            raise ValueError(f"the grid has {count} points, more than {MOST_POINTS}; use fewer")
        points = (
            self.params(dict(zip(self.keys, point, strict=True)))
            for point in itertools.product(*values)
        )
        # Once each: conditions leave keys out.
        return list({json.dumps(point): point for point in points}.values())

    def _all_values(self, key: str) -> list[Any]:
        of = self.distributions[key]
        if isinstance(of, CategoricalDistribution):
            return list(self.choices(key))
        assert isinstance(of, IntDistribution | FloatDistribution)
        if of.step is None:
            raise ValueError(f"{key} has no finite number of values; give it a step, or choices")
        count = round((of.high - of.low) / of.step) + 1
        return [self._value(key, of.low + number * of.step) for number in range(count)]

    def _walk(self, value_of: Callable[[str], Any]) -> dict[str, Any]:
        """The value of each active key, parents first."""
        values: dict[str, Any] = {}
        for key, parameter in self._parameters.items():
            if all(
                parent in values and values[parent] in _list(wanted)
                for parent, wanted in parameter.when.items()
            ):
                values[key] = value_of(key)
        return values

    def _unmet(self, parent: str, wanted: Any, above: tuple[str, ...]) -> str | None:
        """Reason why a condition can never be tested or hold; None where it can."""
        if parent not in above:
            return f"must be a key above it in sweep.space{hint(parent, above)}"
        if isinstance(of := self.distributions[parent], FloatDistribution) and of.step is None:
            return f"can be any number, so it hardly ever is {_words(wanted)}; give it choices"
        for value in _list(wanted):
            if not self.holds(parent, value):
                return f"is never {_words(value)} in this space"
        return None

    def _distribution(self, key: str) -> BaseDistribution:
        parameter = self._parameters[key]
        if parameter.choices is not None:
            return CategoricalDistribution([as_param(choice) for choice in parameter.choices])
        low, high, step, log = parameter.low, parameter.high, parameter.step, parameter.log
        assert low is not None
        assert high is not None
        if key in self._integers:
            return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
        return FloatDistribution(float(low), float(high), log=log, step=step)

    def _value(self, key: str, param: Any) -> Any:
        if isinstance(param, float) and self._parameters[key].step is not None:
            return round(param, _DECIMALS)
        return next((one for one in self.choices(key) if as_param(one) == param), param)


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
