"""The stages of a retraining: from scratch, then fine-tuning where it is asked for."""

from dataclasses import dataclass

from training.config import RetrainConfig, check_warmup, steps_in
from training.schedules import decay, learning_rate


@dataclass(frozen=True)
class Stages:
    """What a retraining's settings come to for a text.

    Attributes:
        config: the settings.
        first: steps from scratch.
        fine_tune: steps at the lower learning rate, 0 without such a stage.
    """

    config: RetrainConfig
    first: int
    fine_tune: int

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.first + self.fine_tune

    def rate(self, step: int) -> float:
        """Learning rate of one step."""
        stage = self.config.fine_tune
        if stage is None or step < self.first:
            return learning_rate(self.config.optimiser, step, self.first)
        progress = (step - self.first) / max(self.fine_tune - 1, 1)
        return stage.lr * decay(stage.schedule, progress, 0.0)


def stages_of(config: RetrainConfig, steps_per_epoch: int) -> Stages:
    """The stages, with epochs in steps.

    Raises:
        ValueError: the warm-up would not end before the last step.
    """
    first = steps_in(config.steps, config.epochs, steps_per_epoch)
    check_warmup(config.optimiser, first)
    stage = config.fine_tune
    last = 0 if stage is None else steps_in(stage.steps, stage.epochs, steps_per_epoch)
    return Stages(config, first, last)
