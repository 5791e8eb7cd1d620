"""The training loop with its hooks, for search and retraining alike: one phase, resumable."""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.checkpoint import Checkpoints, read_tensors, restore_weights
from training.config import RunConfig
from training.console import Screen
from training.distributed import ALONE, Ranks
from training.evaluation import Evaluation
from training.hooks import CheckpointHook, Clock, LogHook, ValidationHook
from training.run_dir import Identity, MetricsFile, claim, locked, record_resume
from training.signals import Lost, Stopped, StopRequest
from training.state import Batches, Hook, Step, TrainState
from training.trackers import Opener, Tracker
from utils.files import remove_temporary, write_whole


@dataclass
class Trainer:
    """Everything that tells one phase from another.

    Attributes:
        identity: its own sections and the hashes of its inputs.
        files: text files saved in the folder before step 0.
        summary: what is said before the first step.
        nets: what is validated (None: not at this step); the last decides which step is best.
        columns: more columns of a training row.
        recorders: more hooks, called after every step before any other.
        resumed: called with the state a resume goes on from, before anything is written.
        before_checkpoint: called before each checkpoint, to save what belongs to it.
        work: of each step, in any unit, for the time that is left; None: all steps are alike.
        facts: more of what the result says, by what it is about.
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
    nets: Mapping[str, Callable[[TrainState], Evaluation | None]]
    columns: Callable[[TrainState], Mapping[str, float]] = lambda state: {}
    recorders: Sequence[Hook] = ()
    resumed: Callable[[TrainState], None] = lambda state: None
    before_checkpoint: Callable[[], None] = lambda: None
    trackers: Sequence[Opener] = ()
    ranks: Ranks = ALONE
    work: Sequence[float] | None = None
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metrics_file: MetricsFile = field(init=False)
    _held: ExitStack = field(init=False, default_factory=ExitStack)

    def open(self) -> None:
        """Take the folder until `close`, also where that fails; go back to its last checkpoint.

        ValueError: it holds another experiment, another process trains there, or its checkpoint
        cannot be used.
        """
        if self.ranks.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._held.enter_context(locked(self.folder))
            claim(self.folder, self.identity, self.files)
            remove_temporary(self.folder)
        self.ranks.wait()
        checkpoint = self._checkpoints.find()
        if checkpoint is not None:
            checkpoint.restore(self.state)
            self.resumed(self.state)
            if self.ranks.is_first:
                # Left by a kill between a checkpoint and the removal of what it does not name.
                self._checkpoints.remove_unnamed()
        path = self.folder / "metrics.jsonl" if self.ranks.is_first else None
        self.metrics_file = MetricsFile(path, self.state.step)

    def close(self) -> None:
        """Let other processes have the folder, once all that belongs to the phase is written."""
        self._held.close()

    def run(self, config: RunConfig, heard: Set[str] = frozenset()) -> None:
        """Train to the end; the lines that were heard before are not shown again.

        Stopped: a signal came, and the state is saved. Diverged, Lost, OSError: the last whole
        checkpoint stays.
        """
        with ExitStack() as at_the_end:
            start = self.state.step
            if start >= self.steps:
                return
            clock = Clock(self.state.elapsed_s)
            screen, trackers = self._open_output(config, start, heard, at_the_end)
            stop = StopRequest(self.ranks)
            with stop.listening():
                hooks = [*self.recorders, *self._hooks(config, clock, screen, stop, trackers)]
                try:
                    self.state.model.train()
                    while self.state.step < self.steps:
                        metrics = self.step(self.state, self.batches.batch(self.state.step))
                        self.state.step += 1
                        for hook in hooks:
                            hook(self.state, metrics)
                    # One that came after the last step's question, which is answered at the next.
                    if (number := stop.agreed() or stop.agreed()) is not None:
                        raise Stopped(number)
                except Lost as lost:
                    raise Lost(f"{lost}; {self._checkpoints.newest()}") from lost

    def _open_output(
        self, config: RunConfig, start: int, heard: Set[str], at_the_end: ExitStack
    ) -> tuple[Screen, list[Tracker]]:
        screen = Screen(
            self.folder / "train.log" if self.ranks.is_first else None,
            title=self.title,
            start=start,
            work=[1.0] * self.steps if self.work is None else self.work,
        )
        at_the_end.callback(screen.close)
        if not self.ranks.is_first:
            return screen, []
        screen.say(self._greeting(config), heard)
        trackers = []
        for opened in self.trackers:
            trackers.append(opened(start))
            at_the_end.callback(trackers[-1].close)
        return screen, trackers

    def take_best(self) -> None:
        """Put the weights of the best step into the model."""
        if (step := self.state.best.step) != self.state.step:
            restore_weights(self.state, read_tensors(self._checkpoints.best(step)))

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder, self.ranks)

    def _greeting(self, config: RunConfig) -> str:
        step = self.state.step
        if not step:
            write_whole(self.folder / "environment.json", self.files["environment.json"])
            return self.summary
        settings = config.model_dump(include={"micro_batches", "attention", "compile"})
        settings["ranks"] = self.ranks.world
        device = next(self.state.model.parameters()).device
        differences = record_resume(self.folder, device, step, settings)
        text = f"resumes from step {step} of {self.steps}"
        if differences:
            text += f"; not exactly as without the interruption: {'; '.join(differences)}"
        return text

    def _hooks(
        self,
        config: RunConfig,
        clock: Clock,
        screen: Screen,
        stop: StopRequest,
        trackers: Sequence[Tracker],
    ) -> list[Hook]:
        common: dict[str, Any] = {
            "metrics_file": self.metrics_file,
            "clock": clock,
            "until": self.steps,
            "ranks": self.ranks,
        }
        shown: dict[str, Any] = {**common, "screen": screen, "trackers": trackers}
        saved: dict[str, Any] = {"checkpoints": self._checkpoints}
        every, before = config.checkpoint_every, self.before_checkpoint
        return [
            LogHook(**shown, every=config.log_every, columns=self.columns),
            ValidationHook(**shown, **saved, every=config.validate_every, nets=self.nets),
            CheckpointHook(**common, **saved, every=every, stop=stop, before=before),
        ]
