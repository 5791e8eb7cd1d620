"""What all processes of a sweep have in common."""

from dataclasses import dataclass
from pathlib import Path

from assembly.sweeping.places import Places
from experiment import Experiment
from experiment_sweep import Baseline, baseline, space_of
from hpo.config import SweepConfig
from hpo.space import Space


@dataclass(frozen=True)
class Sweep:
    """A sweep.

    Attributes:
        experiment: the whole experiment; its values are the baseline.
        config: its `sweep` section.
        space: what is swept.
        places: where its files are.
        baseline: the experiment's own values as a trial.
    """

    experiment: Experiment
    config: SweepConfig
    space: Space
    places: Places
    baseline: Baseline


def sweep_of(experiment: Experiment, run: Path) -> Sweep:
    """The sweep of an experiment that has one."""
    assert experiment.sweep is not None
    space = space_of(experiment)
    return Sweep(experiment, experiment.sweep, space, Places(run), baseline(experiment, space))
