"""A sweep from its command line: started here, or joined; its workers and its end."""

import re
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path

import optuna

from hpo.study import TrialEntry, entries, reached, retry_failed
from pipeline.devices import share_of_gpus, too_many_threads
from pipeline.experiment import Experiment, dump_experiment
from pipeline.jobs import Countdown
from pipeline.plan import RunPlan, set_up
from pipeline.sweep.plan import Sweep, create_study, identity, join_study, sweep_of
from pipeline.sweep.results import clean, finish, objectives, row_of, written_experiments
from pipeline.sweep.worker import BEGINS, DONE, USELESS, work
from report.sweep.trials import value_text
from training.run_dir import claim, is_claimed, locked
from training.signals import Stopped, StopRequest
from utils.cores import share_of_threads, usable_cores
from utils.files import write_whole
from utils.screen import announce
from utils.text import masked

_POLL_S = 0.5
# Of a trial's log what the screen shows: how far it is, and what is seldom meant.
_SHOWN = re.compile(rf"{BEGINS} |\w+ +\d+/\d+  validation|warning: ")


def start_sweep(experiment: Experiment, run_dir: Path, workers: int, *, again: bool) -> None:
    """Make the study, or go on with it, with so many trials at a time, and write what it came to.

    `again`: trials that have failed are run again. The results so far are written also where a
    signal stops it.
    """
    sweep = sweep_of(experiment, run_dir)
    is_new = not is_claimed(sweep.own, identity(sweep))
    for path in written_experiments(run_dir) if is_new else ():
        raise ValueError(
            f"{path}: no sweep wrote it, and the best trial's experiment comes there; move it "
            "away, or use another --run"
        )
    plan = set_up(experiment, run_dir)
    sweep.own.mkdir(parents=True, exist_ok=True)
    with locked(sweep.own), reached(sweep.storage):
        study = create_study(sweep, plan.inputs())
        if again:
            print(f"{retry_failed(study)} failed trials run again", flush=True)
        # Not before: what is claimed takes no other space, and the address may have been wrong.
        claim(sweep.own, identity(sweep), {"environment.json": plan.files()["environment.json"]})
        # Always the newest: the number of trials, limits and what is kept may change.
        write_whole(sweep.own / "experiment.yaml", dump_experiment(experiment))
        if sweep.no_baseline:
            print(f"no trial with the file's own values: {sweep.no_baseline}", flush=True)
        try:
            run_trials(sweep, study, plan, workers)
        except (Stopped, ValueError):
            finish(sweep, entries(study), ended=False)
            raise
        finish(sweep, entries(study), ended=True)


def join_sweep(experiment: Experiment, run_dir: Path, workers: int) -> None:
    """Run trials of a sweep that was started elsewhere; that command writes the results."""
    sweep = sweep_of(experiment, run_dir)
    plan = set_up(experiment, run_dir)
    with reached(sweep.storage):
        study = join_study(sweep, plan.inputs())
        if all(entry.finished for entry in entries(study)):
            announce(f"sweep {sweep.run}: every trial has ended, so a worker has nothing to do")
            return
        run_trials(sweep, study, plan, workers)


def run_trials(sweep: Sweep, study: optuna.Study, plan: RunPlan, workers: int) -> None:
    """Run trials in so many processes until none is left; one that dies is started again."""
    found, config = entries(study), sweep.config
    left = sum(not entry.finished for entry in found)
    announce(
        f"sweep {sweep.run}: {len(found)} trials ({len(found) - left} done), objective "
        f"{', '.join(config.objectives)}, sampler {config.sampler.kind}, pruner "
        f"{config.pruner.kind}, storage {masked(sweep.storage)}"
    )
    threads = sweep.of_trials("threads") or share_of_threads(workers)
    if warning := too_many_threads(threads, workers, usable_cores()):
        announce(warning)

    def start(place: int) -> SpawnProcess:
        arguments = (sweep, plan.inputs(), share_of_gpus(place), threads)
        process = get_context("spawn").Process(target=work, args=arguments, daemon=True)
        # Not for its imports either: a worker is asked to end by this process alone.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        process.start()
        signal.signal(signal.SIGINT, before)
        return process

    deaths = left * (config.retries + 2)
    progress = Progress(sweep, found, workers)
    with StopRequest().listening() as stop:
        processes = [start(place) for place in range(workers if left else 0)]
        try:
            while stop.number is None and any(one.exitcode != DONE for one in processes):
                time.sleep(_POLL_S)
                for place, process in enumerate(processes):
                    if process.exitcode in (1, USELESS) or not deaths:
                        raise ValueError("a worker failed; its message is above")
                    if process.exitcode not in (None, DONE):
                        deaths -= 1
                        processes[place] = start(place)
                if progress.show(found := entries(study)):
                    clean(sweep, found)
            if stop.number is not None:
                announce("stopping: each trial saves a checkpoint first")
        finally:
            for process in processes:
                process.terminate()  # it saves a checkpoint first
            for process in processes:
                process.join()
            progress.show(entries(study))
    if stop.number is not None:
        raise Stopped(stop.number)


class Progress:
    """Prints news of a sweep; what had ended at its making is known from an earlier command."""

    def __init__(self, sweep: Sweep, found: Sequence[TrialEntry], workers: int = 1) -> None:
        self._sweep = sweep
        self._seen = {attempt.number for _, attempt in _ended(found)}
        self._countdown = Countdown(sum(not entry.finished for entry in found), workers)
        self._warnings = set[str]()
        # By trial, how many lines of its log are known.
        self._read = {entry.number: len(self._log(entry.number)) for entry in found}

    def show(self, found: Sequence[TrialEntry]) -> bool:
        """Print what trials say and a line for every attempt that has ended since; if any has."""
        new = [(of, attempt) for of, attempt in _ended(found) if attempt.number not in self._seen]
        self._seen |= {attempt.number for _, attempt in new}
        lately = {entry.number for entry, _ in new}
        for entry in found:
            if not entry.finished or entry.number in lately:
                for line in self._said_by(entry.number):
                    announce(f"trial {entry.number}  {line}")
        for entry, attempt in new:
            until = entry.attempts[: entry.attempts.index(attempt) + 1]
            line = _line(self._sweep, TrialEntry(entry.number, until))
            # After a worker's death the trial waits for its next attempt.
            announce(self._countdown.line(line) if attempt is entry.last else line)
        return bool(new)

    def _said_by(self, number: int) -> Iterator[str]:
        """Lines of a trial's log since; a warning once, whatever the figures in it."""
        lines = self._log(number)
        new = lines[self._read.get(number, 0) :]
        self._read[number] = len(lines)
        for line in filter(_SHOWN.match, new):
            words = re.sub(r"\d+", "", line)
            if not line.startswith("warning: ") or words not in self._warnings:
                yield line
            self._warnings.add(words)

    def _log(self, number: int) -> list[str]:
        """The lines of a trial's log that are there whole."""
        path = self._sweep.trial(number) / "trial.log"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return text.rpartition("\n")[0].splitlines()


def _ended(found: Sequence[TrialEntry]) -> list[tuple[TrialEntry, optuna.trial.FrozenTrial]]:
    return [
        (entry, attempt)
        for entry in found
        for attempt in entry.attempts
        if attempt.state.is_finished()
    ]


def _line(sweep: Sweep, entry: TrialEntry) -> str:
    row = row_of(sweep, entry)
    said = f"{row.state}: {row.reason}" if row.values is None else row.reason or ""
    pairs = zip(objectives(sweep), row.values or [], strict=False)
    parts = [
        f"trial {row.number}",
        "; ".join(f"{goal.text(value)} {goal.unit}" for goal, value in pairs),
        row.layout or "",
        said,
        ", ".join(f"{key}={value_text(value)}" for key, value in row.params.items()),
        f"{row.attempts} attempts" if row.attempts > 1 else "",
    ]
    return "  ".join(part for part in parts if part)
