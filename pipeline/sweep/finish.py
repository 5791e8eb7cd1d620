"""Files of a sweep: trials.csv, sweep.json, best.yaml, figures, the report."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna

from hpo.study import Entry, entries
from nas.costs.latency import Latencies
from pipeline.cli import INTERPRETER_IN_FILES, command, interpreter_typed
from pipeline.experiment import dump_experiment
from pipeline.plan import RunPlan
from pipeline.reports import drawn
from pipeline.sweep.plan import Sweep, chosen_experiment, is_baseline
from pipeline.sweep.results import best_entries, measure, objectives, rows
from utils.files import write_whole
from utils.pareto import first_learned

_BEST, _NO_SLOWER = "best.yaml", "best_no_slower.yaml"
# The first line of the experiments that a sweep writes; others are not touched.
_TITLE = "# Written by sweep.py, and again at its every end."


@dataclass(frozen=True)
class Results:
    """The trials as they were at one moment.

    `best` is one trial, or the Pareto front; `no_slower` the best that is no slower than the
    baseline, where that is known.
    """

    table: list[dict[str, Any]]
    best: list[Entry]
    no_slower: Entry | None
    latencies: Latencies


def finish(plan: RunPlan, sweep: Sweep, study: optuna.Study, *, done: bool) -> None:
    """Write and print what is there, also of a sweep that was stopped; latencies only when `done`.

    Raises:
        ValueError: every trial has failed.
        OSError: a file cannot be written.
    """
    from report.sweep.tables import csv_text, text_table

    results = _results(plan, sweep, entries(study), done=done)
    table, goals, run = results.table, objectives(sweep), sweep.paths.run
    files = _experiments(sweep, results)
    summary = _summary(sweep, results, _commands(sweep, files, INTERPRETER_IN_FILES))
    write_whole(run / "trials.csv", csv_text(table, goals))
    write_whole(run / "sweep.json", json.dumps(summary, indent=1) + "\n")
    drawn("report.sweep.figures:draw_sweep", study, table, run / "figures", goals)
    page = drawn("report.sweep.page:write_sweep_report", run)
    print(f"\n{text_table(table, goals)}\n{results.latencies.note}")
    _say_best(sweep, run, files)
    print(f"table: {run / 'trials.csv'}")
    if page is not None:
        print(f"report: {page}")
    _say_next(_commands(sweep, files, interpreter_typed()))
    if done and not files:
        reasons = "; ".join(dict.fromkeys(row["reason"] or row["state"] for row in table))
        raise ValueError(f"no trial was done: {reasons:.500}")


def _results(plan: RunPlan, sweep: Sweep, trials: Sequence[Entry], *, done: bool) -> Results:
    by_trial: dict[int, float] = {}
    latencies = Latencies({}, "forward latency: measured when every trial has ended", {})
    if done:
        by_trial, latencies = measure(plan, trials)
    table = rows(sweep, trials, by_trial)
    number = _no_slower(table, _learned(sweep))
    no_slower = next((entry for entry in trials if entry.number == number), None)
    return Results(table, best_entries(trials, sweep), no_slower, latencies)


def _summary(sweep: Sweep, results: Results, commands: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": sweep.paths.run.name,
        "objectives": objectives(sweep),
        "trials_wanted": len(results.table),
        "rows": results.table,
        "best": [entry.number for entry in results.best],
        "no_slower": results.no_slower and results.no_slower.number,
        "latency_note": results.latencies.note,
        "latency_key": results.latencies.key,
        "sampler": sweep.config.sampler.kind,
        "pruner": sweep.config.pruner.kind,
        "storage": sweep.shown_storage,
        "commands": commands,
    }


def _say_best(sweep: Sweep, run: Path, files: Mapping[Path, Entry]) -> None:
    front = [path for path in files if path.parent != run]
    if front:
        print(f"Pareto front: {front[0].parent} ({len(front)} experiments)")
    for path, entry in files.items():
        if path not in front:
            own = " (the file's own values)" if is_baseline(sweep, entry.last) else ""
            print(f"{path.stem.replace('_', ' ')}: trial {entry.number}{own}, {path}")


def _say_next(commands: Mapping[str, str]) -> None:
    if "rerun" in commands:
        print(f"next: {commands['rerun']}")
    if "confirm" in commands:
        print(
            "The best of many trials looks better than it is; with fresh seeds:\n  "
            + commands["confirm"]
        )


def _learned(sweep: Sweep) -> int:
    place = first_learned(sweep.config.objectives)
    assert place is not None, "the section sees to it"
    return place


def _no_slower(table: Sequence[Mapping[str, Any]], learned: int) -> int | None:
    """The best trial, by the learned objective, of those measured no slower than the baseline."""
    measured = [row for row in table if row["values"] and row["latency_ms"] is not None]
    base = next((row for row in measured if row["baseline"]), None)
    if base is None:
        return None
    quick = [row for row in measured if row["latency_ms"] <= base["latency_ms"]]
    best = min(quick, key=lambda row: (row["values"][learned], row["values"], row["number"]))
    return int(best["number"])


def _experiments(sweep: Sweep, results: Results) -> dict[Path, Entry]:
    """Write the best trials' experiments, each of which search.py runs as it is."""
    run, best = sweep.paths.run, results.best
    wanted: dict[Path, Entry] = {}
    if len(sweep.config.objectives) > 1:
        wanted = {run / "pareto" / f"{entry.number:04d}.yaml": entry for entry in best}
    elif best:
        wanted[run / _BEST] = best[0]
    if results.no_slower is not None:
        wanted[run / _NO_SLOWER] = results.no_slower
    check_experiments(run)
    for old in _written(run):
        if old not in wanted:
            old.unlink()
    for path, entry in wanted.items():
        path.parent.mkdir(exist_ok=True)
        text = dump_experiment(chosen_experiment(sweep, entry.last.params))
        write_whole(path, f"{_TITLE}\n{text}")
    return wanted


def _written(run: Path) -> list[Path]:
    """The experiments of best trials that are there."""
    return [*run.glob("pareto/*.yaml"), *(p for p in (run / _BEST, run / _NO_SLOWER) if p.exists())]


def check_experiments(run: Path) -> None:
    """Raise ValueError where an experiment in the place of the best trial's is not a sweep's."""
    for path in _written(run):
        if not path.is_file() or not path.read_bytes().startswith(_TITLE.encode()):
            raise ValueError(
                f"{path}: no sweep wrote it, and the best trial's experiment comes there; move it "
                "away, or use another --run"
            )


def _commands(sweep: Sweep, files: Mapping[Path, Entry], interpreter: str) -> dict[str, str]:
    commands = {
        "sweep": command("sweep.py", sweep.paths.run, interpreter=interpreter),
        "dashboard": f"optuna-dashboard {shlex.quote(sweep.shown_storage)}",
    }
    best, better = _best(sweep, files), _better(sweep, files)
    # With runs of their own below the sweep's: by their files' names alone those of all sweeps
    # would share runs/best and runs/confirm.
    if best is not None:
        run = best.with_suffix("")
        commands["rerun"] = command("search.py", best, run=run, interpreter=interpreter)
    if better is not None:
        both = [str(better), str(sweep.paths.own_experiment)]
        run = sweep.paths.run / "confirm"
        words = [interpreter, "-m", "tools.confirm", *both, "--run", str(run)]
        commands["confirm"] = shlex.join(words)
    return commands


def _best(sweep: Sweep, files: Mapping[Path, Entry]) -> Path | None:
    learned = _learned(sweep)
    return min(files, key=lambda path: files[path].last.values[learned], default=None)


def _better(sweep: Sweep, files: Mapping[Path, Entry]) -> Path | None:
    """Experiment to compare with the baseline: the best that is no slower, else the best."""
    no_slower = [path for path in files if path.name == _NO_SLOWER]
    best = _best(sweep, files)
    tried = no_slower if best is None else [*no_slower, best]
    return next((path for path in tried if not is_baseline(sweep, files[path].last)), None)
