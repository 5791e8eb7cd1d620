"""Results of a sweep: rows, latencies, table, best experiments, page; whose checkpoints stay."""

import json
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from hpo.study import REASON, STOPPED, Entry
from model import Architecture, build_model
from nas.costs.latency import Latencies
from pipeline.cli import INTERPRETER_IN_FILES, command, interpreter_typed
from pipeline.costs import time_models
from pipeline.derive import network_hash
from pipeline.experiment import dump_experiment
from pipeline.plan import RunPlan
from pipeline.run_files import remove_weights
from pipeline.summary import drawn
from pipeline.sweep.plan import Sweep, chosen_experiment, is_baseline
from report.sweep.trials import Objective, Row, done, front
from report.sweep.trials import Sweep as Summary
from utils.files import write_whole
from utils.pareto import first_learned

_UNITS = {
    "retrained": "bits per byte of validation",
    "onehot": "bits per byte of validation, SuperNet",
    "flops": "FLOPs per token",
    "parameters": "parameters",
}
_STATES = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
LOST = "its worker died"
# Where the last attempt ran, and with which version of the program.
_FACTS = ("host", "threads", "gpu", "torch", "commit")
_TIMED_TOGETHER = 32  # networks that are in memory at once
_BEST, _NO_SLOWER = "best.yaml", "best_no_slower.yaml"
# The first line of the experiments that a sweep writes; others are not touched.
_TITLE = "# Written by sweep.py, and again at its every end."


def objectives(sweep: Sweep) -> list[Objective]:
    """Objectives, all minimised, with units."""
    return [Objective(name, _UNITS[name]) for name in sweep.config.objectives]


def rows(
    sweep: Sweep, entries: Iterable[Entry], latency_ms: Mapping[str, float] | None = None
) -> list[Row]:
    """One row for each trial, by number; sizes and latencies are means over its seeds."""
    return [_row(sweep, entry, latency_ms or {}) for entry in entries]


def _row(sweep: Sweep, entry: Entry, latency_ms: Mapping[str, float]) -> Row:
    last, attributes = entry.last, entry.last.user_attrs
    runs = attributes.get("runs", {})
    networks = [_network(run["architecture"]) for run in runs.values()]
    timed = [latency_ms[one] for one in networks if one in latency_ms and last.values]
    durations = [one.duration.total_seconds() for one in entry.attempts if one.duration is not None]
    state = _STATES[last.state]
    if state == "waiting" and any(STOPPED in one.user_attrs for one in entry.attempts[-2:]):
        state = "stopped"
    return Row(
        number=entry.number,
        state=state,
        reason=attributes.get(REASON, LOST if state == "failed" else None),
        baseline=is_baseline(sweep, last),
        values=last.values if state == "done" else None,
        # Of one that waits again, those that its next attempt will have.
        params=last.params or last.system_attrs.get("fixed_params", {}),
        seeds={seed: run["values"] for seed, run in runs.items()},
        layout=" / ".join(dict.fromkeys(run["layout"] for run in runs.values())) or None,
        network=" ".join(one[:16] for one in networks) or None,
        parameters=_mean([run["parameters"] for run in runs.values()]),
        flops_per_token=_mean([run["flops_per_token"] for run in runs.values()]),
        latency_ms=_mean(timed) if len(timed) == len(networks) else None,
        attempts=sum(trial.state != TrialState.WAITING for trial in entry.attempts),
        went_on_from=[
            f"seed {seed}: {step}" if len(sweep.config.seeds) > 1 else step
            for seed, run in runs.items()
            for step in run["went_on_from"]
        ],
        elapsed_s=round(sum(durations), 1) if durations else None,
        **{fact: attributes.get(fact) for fact in _FACTS},
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.mean(values) if values else None


@cache
def _network(text: str) -> str:
    """The hash of the network that an architecture's text describes."""
    return network_hash(_parse(text))


def _parse(text: str) -> Architecture:
    return Architecture.from_json(text, "the study")


def measure(plan: RunPlan, trials: Iterable[FrozenTrial]) -> Latencies:
    """Forward milliseconds by network of the finished trials, each measured once.

    Weights are fresh: latency does not depend on them. Layouts of another tokenizer are left out,
    since the text that is timed has the ids of the experiment's own.
    """
    texts = {
        run["architecture"]
        for trial in trials
        if trial.state == TrialState.COMPLETE
        for run in trial.user_attrs.get("runs", {}).values()
    }
    layouts = {_network(text): _parse(text) for text in sorted(texts)}
    vocabulary = plan.prepared.tokenizer.vocabulary_size
    timed = [key for key, one in layouts.items() if one.vocabulary_size == vocabulary]
    latencies = Latencies({}, "forward latency: no finished layout", {})
    medians: dict[str, float] = {}
    for first in range(0, len(timed), _TIMED_TOGETHER):
        group = {key: layouts[key] for key in timed[first : first + _TIMED_TOGETHER]}
        latencies = time_models(plan, {key: build_model(one) for key, one in group.items()})
        medians |= latencies.median_ms
        if not latencies.median_ms:
            return latencies
    note = latencies.note
    if len(timed) > _TIMED_TOGETHER:
        note += f"; {_TIMED_TOGETHER} at a time"
    if len(timed) < len(layouts):
        note += f"; {len(layouts) - len(timed)} layouts of another vocabulary not measured"
    return replace(latencies, median_ms=medians, note=note)


def clean(sweep: Sweep, entries: Sequence[Entry]) -> None:
    """Remove what only a resume or a use of the model would need, of all trials not kept."""
    keep = sweep.config.keep
    if "all" in keep:
        return
    kept = {row.number for row in front(rows(sweep, entries))} if "best" in keep else set()
    for entry in entries:
        folder = sweep.paths.trial(entry.number)
        done_before = folder / "cleaned"
        # A trial that failed may be looked into.
        ended = entry.finished and entry.last.state != TrialState.FAIL
        if not ended or entry.number in {*kept, *keep} or not folder.exists():
            continue
        if not done_before.exists():
            for seed in sweep.config.seeds:
                remove_weights(sweep.paths.seed(entry.number, seed))
            done_before.touch()


def finish(plan: RunPlan, sweep: Sweep, trials: Sequence[Entry], *, ended: bool) -> None:
    """Write and print what is there, also of a stopped sweep; latencies only when all have `ended`.

    Raises:
        ValueError: every trial has failed.
        OSError: a file cannot be written.
    """
    from report.sweep.tables import csv_text, text_table

    run, goals = sweep.paths.run, objectives(sweep)
    latencies = Latencies({}, "forward latency: measured when every trial has ended", {})
    if ended:
        latencies = measure(plan, (entry.last for entry in trials))
    table = rows(sweep, trials, latencies.median_ms)
    files = write_experiments(sweep, table)
    summary = Summary(
        name=run.name,
        objectives=goals,
        rows=table,
        best=[row.number for row in front(table)],
        no_slower=getattr(no_slower(sweep, table), "number", None),
        latency_note=latencies.note,
        latency_key=latencies.key,
        sampler=sweep.config.sampler.kind,
        pruner=sweep.config.pruner.kind,
        storage=sweep.shown_storage,
        commands=commands(sweep, files, INTERPRETER_IN_FILES),
    )
    write_whole(run / "trials.csv", csv_text(table, goals))
    write_whole(run / "sweep.json", json.dumps(asdict(summary), indent=1) + "\n")
    drawn(
        "report.sweep.figures:draw_sweep", table, goals, sweep.space.distributions, run / "figures"
    )
    page = drawn("report.sweep.page:write_sweep_report", run, summary)
    print(f"\n{text_table(table, goals)}\n{latencies.note}")
    front_files = [path for path in files if path.parent != run]
    if front_files:
        print(f"Pareto front: {front_files[0].parent} ({len(front_files)} experiments)")
    for path, row in files.items():
        if path not in front_files:
            own = " (the file's own values)" if row.baseline else ""
            print(f"{path.stem.replace('_', ' ')}: trial {row.number}{own}, {path}")
    print(f"table: {run / 'trials.csv'}")
    if page is not None:
        print(f"report: {page}")
    left = commands(sweep, files, interpreter_typed())
    if "rerun" in left:
        print(f"next: {left['rerun']}")
    if "confirm" in left:
        words = "The best of many trials looks better than it is; with fresh seeds:"
        print(f"{words}\n  {left['confirm']}")
    if ended and not files:
        reasons = "; ".join(dict.fromkeys(row.reason or row.state for row in table))
        raise ValueError(f"no trial was done: {reasons:.500}")


def _learned(sweep: Sweep, row: Row) -> float:
    """Its value in the first objective that takes training."""
    place = first_learned(sweep.config.objectives)
    assert place is not None, "the section sees to it"
    assert row.values is not None
    return row.values[place]


def no_slower(sweep: Sweep, table: Sequence[Row]) -> Row | None:
    """The best trial, by the learned objective, of those measured no slower than the baseline."""
    measured = [row for row in done(table) if row.latency_ms is not None]
    base = next((row.latency_ms for row in measured if row.baseline), None)
    quick = [row for row in measured if base and row.latency_ms and row.latency_ms <= base]
    return min(quick, key=lambda row: (_learned(sweep, row), row.values, row.number), default=None)


def write_experiments(sweep: Sweep, table: Sequence[Row]) -> dict[Path, Row]:
    """Write the best trials' experiments, each of which search.py runs as it is."""
    run, best = sweep.paths.run, front(table)
    several = len(sweep.config.objectives) > 1
    wanted = {run / "pareto" / f"{row.number:04d}.yaml" if several else run / _BEST: row
              for row in best}  # fmt: skip
    if (quick := no_slower(sweep, table)) is not None:
        wanted[run / _NO_SLOWER] = quick
    for old in written_experiments(run):
        if old not in wanted:
            old.unlink()
    for path, row in wanted.items():
        path.parent.mkdir(exist_ok=True)
        text = dump_experiment(chosen_experiment(sweep, row.params))
        write_whole(path, f"{_TITLE}\n{text}")
    return wanted


def written_experiments(run: Path) -> list[Path]:
    """The experiments of best trials that are there; ValueError where one is not a sweep's."""
    paths = [*run.glob("pareto/*.yaml"), *run.glob(_BEST), *run.glob(_NO_SLOWER)]
    for path in paths:
        if not path.is_file() or not path.read_bytes().startswith(_TITLE.encode()):
            raise ValueError(
                f"{path}: no sweep wrote it, and the best trial's experiment comes there; move it "
                "away, or use another --run"
            )
    return paths


def commands(sweep: Sweep, files: Mapping[Path, Row], interpreter: str) -> dict[str, str]:
    """What to type: to go on, to look at the study, to use the best experiment and confirm it."""
    found = {
        "sweep": command("sweep.py", sweep.paths.run, interpreter=interpreter),
        "dashboard": f"optuna-dashboard {shlex.quote(sweep.shown_storage)}",
    }
    if not files:
        return found
    best = min(files, key=lambda path: _learned(sweep, files[path]))
    # With runs of their own below the sweep's: by their files' names alone those of all sweeps
    # would share runs/best and runs/confirm.
    run = best.with_suffix("")
    found["rerun"] = command("search.py", best, run=run, interpreter=interpreter)
    # Compared with the baseline is the best that is no slower, else the best.
    tried = [*(path for path in files if path.name == _NO_SLOWER), best]
    better = next((path for path in tried if not files[path].baseline), None)
    if better is not None:
        both = [str(better), str(sweep.paths.own_experiment)]
        confirm = ["--run", str(sweep.paths.run / "confirm")]
        found["confirm"] = shlex.join([interpreter, "-m", "tools.confirm", *both, *confirm])
    return found
