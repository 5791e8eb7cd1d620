"""From the `sweep` section of an experiment to its space and to the first trial."""

from dataclasses import dataclass
from typing import Any

from experiment import Experiment, changed_settings
from experiment_space import number_kinds
from hpo.space import Space
from utils.validation import Section, show


@dataclass(frozen=True)
class Baseline:
    """The experiment file's own values as a trial.

    Attributes:
        params: what Optuna stores for them; None where they are not in the space.
        reason: why there are none, for the user.
    """

    params: dict[str, Any] | None
    reason: str = ""


def space_of(experiment: Experiment) -> Space:
    """The space of an experiment with a sweep.

    Raises:
        ValueError: a condition that cannot hold, or a range that does not fit its key.
    """
    assert experiment.sweep is not None
    space = experiment.sweep.space
    return Space(space, number_kinds(Experiment, space))


def baseline(experiment: Experiment, space: Space) -> Baseline:
    """The trial that is the experiment as its file has it (but for `sweep.set`)."""
    bare, _ = changed_settings(experiment, {})
    own: dict[str, Any] = {}
    left_out: dict[str, Any] = {}
    reasons: list[str] = []
    for key in space.keys:
        if key in space.inactive(own):
            continue
        value = _own_value(experiment, bare, space, key)
        if value is None and not space.holds(key, value):
            # The file leaves the key to its default, which is a value of the space where it is one.
            value = left_out[key] = _value_in_use(experiment, key)
        if space.holds(key, value):
            own[key] = value
        else:
            reasons.append(f"{key} is {show(value)} there, not in {space.describe(key)}")
    if reasons:
        return Baseline(None, "; ".join(reasons))
    without = space.inactive(own)
    bare, _ = changed_settings(experiment, left_out)
    same, _ = changed_settings(experiment, own, without)
    if same != bare:
        return Baseline(None, f"it sets {', '.join(without)}, which 'when' leaves out")
    return Baseline(space.params(own))


def _own_value(experiment: Experiment, bare: Experiment | None, space: Space, key: str) -> Any:
    """The choice that changes nothing; of a range what the file says."""
    for choice in space.choices(key) or ():
        if changed_settings(experiment, {key: choice})[0] == bare:
            return choice
    here: Any = experiment.model_dump(mode="json")
    for part in key.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def _value_in_use(experiment: Experiment, key: str) -> Any:
    """What a key that the file leaves out comes to; None where its section alone does not say."""
    *sections, last = key.split(".")
    here: Any = experiment
    for name in sections:
        here = getattr(here, name, None)
    return here.left_out().get(last) if isinstance(here, Section) else None
