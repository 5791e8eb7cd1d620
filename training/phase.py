"""One phase from its first or its last saved step to its end: the loop with its hooks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.checkpoint import load_checkpoint
from training.config import RunConfig
from training.evaluation import Evaluation
from training.hooks import CheckpointHook, Clock, LogHook, ValidationHook, Writer
from training.loop import Batches, Hook, Step, train
from training.metrics import MetricsFile
from training.run_dir import FolderLock, Identity, claim, identity_hash, record_resume
from training.screen import Screen
from training.signals import StopRequest
from training.state import TrainState

LAST, BEST = "last.safetensors", "best.safetensors"


@dataclass
class Phase:
    """Everything that tells one phase from another.

    Attributes:
        title: what the progress bar calls it.
        folder: where it writes.
        identity: its own sections and the hashes of its inputs.
        files: text files saved in the folder before step 0.
        summary: what is said before the first step.
        steps: how many steps it takes.
        state: model, optimisers, streams.
        batches: training text.
        step: the step of this phase.
        nets: what is validated; the last one decides which step is best.
        columns: more columns of a training row.
        recorders: more hooks, called after every step before any other.
        resumed: called with the step a resume goes on from.
        before_checkpoint: called before each checkpoint, to save what belongs to it.
        writer: opens TensorBoard's writer; rows after the step it is given are dropped.
    """

    title: str
    folder: Path
    identity: Identity
    files: Mapping[str, str]
    summary: str
    steps: int
    state: TrainState
    batches: Batches
    step: Step
    nets: Mapping[str, Callable[[TrainState], Evaluation]]
    columns: Callable[[TrainState], Mapping[str, float]] = lambda state: {}
    recorders: Sequence[Hook] = ()
    resumed: Callable[[int], None] = lambda step: None
    before_checkpoint: Callable[[], None] = lambda: None
    writer: Callable[[int], Any] | None = None
    metrics_file: MetricsFile = field(init=False)
    _lock: FolderLock = field(init=False)

    def open(self) -> None:
        """Take the folder, or go back to its last checkpoint.

        Raises:
            ValueError: the folder holds another experiment, or its checkpoint is damaged.
            OSError: the folder cannot be written.
        """
        claim(self.folder, self.identity, self.files)
        self._lock = FolderLock(self.folder)
        for left_by_a_kill in self.folder.glob(".*.tmp"):
            left_by_a_kill.unlink()
        last = self.folder / LAST
        if last.exists():
            load_checkpoint(last, self.state, identity_hash(self.identity))
            self.resumed(self.state.step)
        self.metrics_file = MetricsFile(self.folder / "metrics.jsonl", self.state.step)

    def run(self, config: RunConfig) -> None:
        """Train to the end.

        Raises:
            Stopped: a signal came; the state is saved.
            Diverged: the loss is not a number.
            OSError: a file could not be written; the last whole checkpoint stays.
        """
        start = self.state.step
        if start >= self.steps:
            self._lock.release()
            return
        clock = Clock(self.state.elapsed_s)
        screen = Screen(self.folder / "train.log", title=self.title, steps=self.steps, start=start)
        screen.say(self._greeting(config))
        stop = StopRequest()
        writer = self.writer(start) if self.writer else None
        try:
            with stop.listening():
                hooks = [*self.recorders, *self._hooks(config, clock, screen, stop, writer)]
                train(self.state, self.batches, self.step, hooks, self.steps)
        finally:
            screen.close()
            if writer is not None:
                writer.close()
            self._lock.release()

    def _greeting(self, config: RunConfig) -> str:
        step = self.state.step
        if not step:
            return self.summary
        device = next(self.state.model.parameters()).device
        differences = record_resume(self.folder, device, step, micro_batches=config.micro_batches)
        text = f"goes on from step {step} of {self.steps}"
        if differences:
            text += f"; not exactly as it would have: {'; '.join(differences)}"
        return text

    def _hooks(
        self,
        config: RunConfig,
        clock: Clock,
        screen: Screen,
        stop: StopRequest,
        writer: Writer | None,
    ) -> list[Hook]:
        common: dict[str, Any] = {
            "metrics_file": self.metrics_file,
            "clock": clock,
            "until": self.steps,
        }
        return [
            LogHook(
                **common,
                screen=screen,
                every=config.log_every,
                columns=self.columns,
                writer=writer,
            ),
            ValidationHook(
                **common,
                nets=self.nets,
                screen=screen,
                every=config.validate_every,
                best_path=self.folder / BEST,
                writer=writer,
            ),
            CheckpointHook(
                **common,
                path=self.folder / LAST,
                identity=identity_hash(self.identity),
                stop=stop,
                every=config.checkpoint_every,
                before=self.before_checkpoint,
            ),
        ]
