"""Where a sweep keeps its files."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """The paths below a sweep's run directory."""

    run: Path

    @property
    def own(self) -> Path:
        """What belongs to the sweep itself: experiment, identity, journal, workers' logs."""
        return self.run / "sweep"

    @property
    def own_experiment(self) -> Path:
        """The experiment with its `sweep` section, as it was last started."""
        return self.own / "experiment.yaml"

    @property
    def journal(self) -> Path:
        """Optuna's journal, where no database is used."""
        return self.own / "study.journal"

    @property
    def workers(self) -> Path:
        """The logs of workers."""
        return self.own / "workers"

    @property
    def trials(self) -> Path:
        """One folder for each trial."""
        return self.run / "trials"

    def trial(self, number: int) -> Path:
        """The folder of a trial, by the number of its first attempt."""
        return self.trials / f"{number:04d}"

    def seed(self, number: int, seed: int) -> Path:
        """The run directory of a trial and a seed."""
        return self.trial(number) / f"seed-{seed}"
