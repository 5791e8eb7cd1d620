"""A run of a trial, by the functions of the verbs, and what its files came to."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from model import Architecture
from pipeline.architectures import find_architecture
from pipeline.derive import choose, derivation
from pipeline.experiment import Experiment, dump_experiment
from pipeline.plan import RunPlan, set_up
from pipeline.reports import show_report
from pipeline.retrain import copy_chosen, finish_retrain, open_retraining
from pipeline.run_files import read_result, search_folder
from pipeline.search import check_searchable, finish_searches, search_trainer
from pipeline.trainings import LayoutTrainings
from training.run_dir import read_rows
from training.signals import Stopped, StopRequest
from utils.files import read_object, write_whole

NO_BITS = (
    "sweep.objectives: no bits per byte, because the tokenizer may lose text; use a lossless one "
    "(kind bpe, unigram or bytes, without lower_case)"
)


@dataclass(frozen=True)
class SeedOutcome:
    """Result of one run of a trial: objectives by name, and facts for the table."""

    objectives: dict[str, float]
    facts: dict[str, Any]


def run_seed(
    experiment: Experiment,
    objectives: Sequence[str],
    run: Path,
    stop: StopRequest,
    pruned: optuna.Trial | None,
) -> SeedOutcome:
    """Search, derive and, with the objective `retrained`, retrain in the run folder `run`.

    A run that was begun there goes on. `stop` is asked between two phases; a training has one of
    its own. The trial `pruned` hears of the search's validations.

    Raises:
        Stopped: this process was asked to end; the state is saved.
        TrialPruned: the pruner gives the trial up.
        ValueError, OSError, Diverged: the trial failed.
    """
    run.mkdir(parents=True, exist_ok=True)
    write_whole(run / "experiment.yaml", dump_experiment(experiment))
    check_searchable(experiment)
    plan = set_up(experiment, run)
    trainer = search_trainer(plan)
    if pruned is not None:
        metrics = trainer.folder / "metrics.jsonl"
        trainer.trackers = [*trainer.trackers, lambda step: Pruning(pruned, metrics, step)]
    trainer.open()
    with closing(trainer):
        trainer.run(plan.experiment.run)
    finish_searches(plan, [plan.seed])
    _go_on(stop)
    derived = derivation(plan, experiment.derive, LayoutTrainings(plan))
    choose(derived, experiment, run)
    show_report(plan)
    _go_on(stop)
    architecture = find_architecture(plan, None, None)
    result = _retrain(plan, architecture) if "retrained" in objectives else None
    return _outcome(plan, architecture, result, objectives)


def _go_on(stop: StopRequest) -> None:
    if stop.number is not None:
        raise Stopped(stop.number)


def _retrain(plan: RunPlan, architecture: Architecture) -> Path:
    trainer = open_retraining(plan, architecture)
    with closing(trainer):
        trainer.run(plan.experiment.run)
        result = finish_retrain(plan, trainer, architecture)
        copy_chosen(result, plan.run_dir)
    show_report(plan)
    return result


class Pruning:
    """A tracker of the search that reports its validations to Optuna."""

    def __init__(self, trial: optuna.Trial, metrics: Path, step: int) -> None:
        """Report what earlier processes have validated up to a step."""
        self._trial = trial
        for before, bits in search_curve(metrics, "soft").items():
            if before <= step:
                self._report(before, bits)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Report a validation; raise TrialPruned where the pruner gives the trial up."""
        if (bits := values.get("valid_soft/bits_per_byte")) is not None:
            self._report(step, bits)

    def _report(self, step: int, bits: float) -> None:
        self._trial.report(bits, step)
        if self._trial.should_prune():
            raise optuna.TrialPruned(f"at search step {step}, at {bits:.4f} bits per byte")

    def close(self) -> None:
        """Nothing is held back."""


def search_curve(metrics: Path, net: str) -> dict[int, float]:
    """Bits per byte of validation by step of a search, as far as it is."""
    return {
        row["step"]: _bits(row)
        for row in read_rows(metrics)
        if row.get("kind") == "valid" and row.get("net") == net
    }


def _outcome(
    plan: RunPlan, architecture: Architecture, result: Path | None, objectives: Sequence[str]
) -> SeedOutcome:
    costs = architecture.costs
    assert costs is not None, "a derivation writes them"
    values = {"flops": costs.flops_per_token, "parameters": float(costs.parameters)}
    onehot = search_curve(search_folder(plan.run_dir, plan.seed) / "metrics.jsonl", "onehot")
    if onehot or "onehot" in objectives:  # a search whose alpha stands still has no such net
        values["onehot"] = onehot[max(onehot)]
    if result is not None:
        values["retrained"] = _bits(read_result(result)["valid"])
    folders = [search_folder(plan.run_dir, plan.seed), *([result.parent] if result else [])]
    return SeedOutcome(
        objectives=values,
        facts={
            "layout": architecture.letters(),
            "parameters": costs.parameters,
            "flops_per_token": costs.flops_per_token,
            "went_on_from": [line for folder in folders for line in _resumes(plan, folder)],
            "architecture": architecture.to_json(),
        },
    )


def _resumes(plan: RunPlan, folder: Path) -> list[str]:
    """The steps from which a phase of a run went on."""
    content = read_object(folder / "environment.json")
    phase = folder.relative_to(plan.run_dir).parts[0]
    return [f"{phase} step {int(entry['step'])}" for entry in content.get("resumed", [])]


def _bits(scores: Mapping[str, Any]) -> float:
    if (bits := scores["bits_per_byte"]) is None:
        raise ValueError(NO_BITS)
    return float(bits)
