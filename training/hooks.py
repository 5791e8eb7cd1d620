"""What happens around a step: stop where it diverged, log, validate, checkpoint."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from training.checkpoint import Checkpoints
from training.console import Screen
from training.distributed import ALONE, Ranks
from training.evaluation import Evaluation
from training.run_dir import MetricsFile
from training.signals import Diverged, Stopped, StopRequest
from training.state import Best, Metrics, TrainState
from training.trackers import Tracker

LOSS_BOUND_NATS = 50.0


def track(trackers: Sequence[Tracker], prefix: str, row: Mapping[str, Any]) -> None:
    """Send a row's numbers to the trackers."""
    values = {
        f"{prefix}/{key}": value
        for key, value in row.items()
        if isinstance(value, float | int) and key not in {"step", "tokens", "bytes", "words"}
    }
    for tracker in trackers:
        tracker.log(row["step"], values)


@dataclass
class Clock:
    """Seconds of training, those of earlier processes included."""

    before_s: float
    began: float = field(default_factory=time.monotonic)
    validation_s: float = 0.0

    def elapsed_s(self) -> float:
        """Seconds so far."""
        return self.before_s + time.monotonic() - self.began


@dataclass(kw_only=True)
class _Periodic:
    """Due every `every` steps and at the end; nothing is written from numbers that diverged."""

    metrics_file: MetricsFile
    clock: Clock
    every: int
    until: int
    ranks: Ranks = ALONE

    def is_due(self, state: TrainState, metrics: Metrics, *, at_once: bool = False) -> bool:
        due = at_once or state.step % self.every == 0 or state.step == self.until
        if due:
            check_finite(state, float(metrics["loss_nats"]), self.ranks)
        return due


@dataclass(kw_only=True)
class LogHook(_Periodic):
    """Writes a training row; only then does the device synchronise."""

    screen: Screen
    columns: Callable[[TrainState], Mapping[str, float]]
    trackers: Sequence[Tracker]
    _tokens: int | None = None
    _at_s: float = 0.0

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Log where a line is due."""
        if self._tokens is None:
            self._tokens = state.tokens - int(metrics["tokens"])
        self.screen.advance(state.step)
        if not self.is_due(state, metrics):
            return
        row = self._row(state, metrics)
        state.loss_sum.zero_()
        if state.kl_sum is not None:
            state.kl_sum.zero_()
        state.loss_steps = 0
        self.metrics_file.append(row)
        self.screen.train_line(row)
        track(self.trackers, "train", row)

    def _row(self, state: TrainState, metrics: Metrics) -> dict[str, Any]:
        # Of this process, without validations.
        now_s = time.monotonic() - self.clock.began - self.clock.validation_s
        loss_nats = float(state.loss_sum) / state.loss_steps
        speed = (state.tokens - (self._tokens or 0)) / max(now_s - self._at_s, 1e-9)
        self._tokens, self._at_s = state.tokens, now_s
        kl = {} if state.kl_sum is None else {"kl_nats": float(state.kl_sum) / state.loss_steps}
        return {
            "kind": "train",
            "step": state.step,
            "loss_nats": loss_nats,
            "perplexity": math.exp(min(loss_nats, 700.0)),
            **kl,
            "lr": float(metrics["lr"]),
            "grad_norm": float(metrics["grad_norm"]),
            **self.columns(state),
            "tokens": state.tokens,
            "tokens_per_s": round(speed, 1),
            "elapsed_s": round(self.clock.elapsed_s(), 3),
        }


@dataclass(kw_only=True)
class ValidationHook(_Periodic):
    """Evaluates nets, those that there are at a step; the last one decides which step is best."""

    nets: Mapping[str, Callable[[TrainState], Evaluation | None]]
    screen: Screen
    checkpoints: Checkpoints
    trackers: Sequence[Tracker]

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Validate where it is due."""
        if not self.is_due(state, metrics):
            return
        began = time.monotonic()
        trained = [row for row in self.metrics_file.rows() if row["kind"] == "train"]
        last = trained[-1].get("perplexity") if trained else None
        for net, evaluation_of in self.nets.items():
            nats = math.inf
            if (evaluation := evaluation_of(state)) is None:
                continue
            nats = evaluation.nats_per_token
            row = {
                "kind": "valid",
                "step": state.step,
                "net": net,
                **evaluation.row(),
                "elapsed_s": round(self.clock.elapsed_s(), 3),
            }
            self.metrics_file.append(row)
            self.screen.valid_line(row, last)
            track(self.trackers, f"valid_{net}", row)
        self._describe_blocks(state)
        self.clock.validation_s += time.monotonic() - began
        state.validations += 1
        if nats < state.best.nats_per_token:
            state.best = Best(nats_per_token=nats, step=state.step)
            self.checkpoints.save_best(state)

    def _describe_blocks(self, state: TrainState) -> None:
        """A row of what the model's blocks say of themselves, where any does."""
        blocks = state.model.describe()
        if not blocks:
            return
        self.metrics_file.append({"kind": "blocks", "step": state.step, "blocks": blocks})
        self.screen.block_lines(state.step, blocks)
        scalars = {
            f"block{block['block']}_{block['label']}/{name}_{place}": value
            for block in blocks
            for name, values in block["numbers"].items()
            for place, value in enumerate(values)
        }
        track(self.trackers, "blocks", {"step": state.step, **scalars})


@dataclass(kw_only=True)
class CheckpointHook(_Periodic):
    """Saves the state, also when a signal came; `before` saves first what belongs to it."""

    checkpoints: Checkpoints
    stop: StopRequest
    before: Callable[[], None]

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Save where it is due; raise Stopped after the save where a signal came."""
        stopping = self.stop.agreed()
        if not self.is_due(state, metrics, at_once=stopping is not None):
            return
        state.elapsed_s = self.clock.elapsed_s()
        self.metrics_file.sync()
        if self.ranks.is_first:
            self.before()
        self.checkpoints.save(state)
        if stopping is not None:
            raise Stopped(stopping)


def check_finite(state: TrainState, loss_nats: float, ranks: Ranks) -> None:
    """Stop all ranks where one holds NaN or inf, or where the last loss is implausible.

    Diverged names the step, the tensor and what to try.
    """
    for problem in filter(None, ranks.all_say(_divergence(state, loss_nats))):
        raise Diverged(
            f"diverged at step {state.step}: {problem}; lower optimiser.lr, raise "
            "optimiser.warmup_steps or give a lower optimiser.clip_norm, in another --run directory"
        )


def _divergence(state: TrainState, loss_nats: float) -> str | None:
    by_device: dict[torch.device, list[tuple[str, Tensor]]] = {}
    for name, tensor in _trained(state):
        by_device.setdefault(tensor.device, []).append((name, tensor))
    for tensors in by_device.values():
        # A sum is several times faster, and no NaN or infinity can hide in it; a GPU is waited for
        # once.
        finite = torch.stack([tensor.sum().isfinite() for _, tensor in tensors]).tolist()
        for (name, tensor), known in zip(tensors, finite, strict=True):
            if not known and not torch.isfinite(tensor).all():
                return f"{name} is not finite"
    for loss in (loss_nats, float(state.loss_sum) / max(state.loss_steps, 1)):
        if not (math.isfinite(loss) and loss < LOSS_BOUND_NATS):
            return f"the loss is {loss:.3g} nats/token"
    return None


def _trained(state: TrainState) -> Iterator[tuple[str, Tensor]]:
    """Everything that the steps move, by name."""
    names: dict[Tensor, str] = {}
    for name, weight in [*state.model.named_parameters(), *state.parameters.items()]:
        names[weight] = name
        yield f"parameter {name}", weight
    for optimiser in state.optimisers.values():
        for moved, slots in optimiser.state.items():
            for slot, value in slots.items():
                if isinstance(value, Tensor):
                    yield f"the optimiser's {slot} of {names[moved]}", value
    for stream in state.streams.values():
        for name, value in stream.tensors().items():
            yield f"stream {name}", value
