"""Results of a sweep: rows, table, best experiments, page; whose checkpoints stay."""

import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path

from optuna.trial import TrialState

from hpo.study import EARLIER_S, REASON, TrialEntry
from model import Architecture
from pipeline.architectures import network_hash
from pipeline.cli import INTERPRETER_IN_FILES, command, interpreter_typed
from pipeline.experiment import dump_experiment, with_settings
from pipeline.run_files import remove_weights
from pipeline.sweep.plan import Sweep, chosen_experiment, is_baseline
from report.sweep.trials import Goal, Summary, TrialRow, front
from utils.files import write_whole
from utils.text import masked

_UNITS = {
    "retrained": "bits per byte of validation",
    "flops": "FLOPs per token",
    "parameters": "parameters",
}
# Others have the names that Optuna gives them.
_STATES = {TrialState.COMPLETE: "done", TrialState.FAIL: "failed"}
LOST = "its worker died"


def objectives(sweep: Sweep) -> list[Goal]:
    """Objectives, all minimised, with units."""
    return [Goal(name, _UNITS[name]) for name in sweep.config.objectives]


def rows(sweep: Sweep, entries: Iterable[TrialEntry]) -> list[TrialRow]:
    """One row for each trial, by number; sizes are means over its seeds."""
    return [row_of(sweep, entry) for entry in entries]


def row_of(sweep: Sweep, entry: TrialEntry) -> TrialRow:
    """The row of a trial by its last attempt."""
    last, attributes = entry.last, entry.last.user_attrs
    runs = attributes.get("runs", {})
    derived = [_derived(run["architecture"]) for run in runs.values()]
    costs = [one.costs for one, _ in derived if one.costs is not None]
    durations = [one.duration.total_seconds() for one in entry.attempts if one.duration is not None]
    durations += [attributes[EARLIER_S]] if EARLIER_S in attributes else []
    state = _STATES.get(last.state, last.state.name.lower())
    return TrialRow(
        number=entry.number,
        state=state,
        reason=attributes.get(REASON, LOST if state == "failed" else None),
        baseline=is_baseline(sweep, last),
        values=last.values if state == "done" else None,
        # Of one that waits again, those that its next attempt will have.
        params=last.params or last.system_attrs.get("fixed_params", {}),
        seeds={seed: run["values"] for seed, run in runs.items()},
        layout=" / ".join(dict.fromkeys(one.letters() for one, _ in derived)) or None,
        network=" ".join(network for _, network in derived) or None,
        parameters=statistics.mean([one.parameters for one in costs]) if costs else None,
        flops_per_token=statistics.mean([one.flops_per_token for one in costs]) if costs else None,
        attempts=sum(trial.datetime_start is not None for trial in entry.attempts),
        elapsed_s=round(sum(durations), 1) if durations else None,
        host=attributes.get("host"),
    )


@cache
def _derived(text: str) -> tuple[Architecture, str]:
    architecture = Architecture.from_json(text, "the study")
    return architecture, network_hash(architecture)


def clean(sweep: Sweep, entries: Sequence[TrialEntry]) -> None:
    """Remove what only a resume or a use of the model would need, of all but the best trials."""
    best = {row.number for row in front(rows(sweep, entries))}
    for entry in entries:
        # A trial that failed may be looked into.
        ended = entry.finished and entry.last.state != TrialState.FAIL
        if ended and entry.number not in best:
            for seed in sweep.config.seeds:
                remove_weights(sweep.trial(entry.number) / f"seed-{seed}")


def finish(sweep: Sweep, trials: Sequence[TrialEntry], *, ended: bool) -> None:
    """Write and print what is there, also of a sweep that has not `ended`.

    ValueError: it has, and no trial was done.
    """
    from report.sweep.tables import csv_text, text_table

    run, goals, table = sweep.run, objectives(sweep), rows(sweep, trials)
    files = write_experiments(sweep, table)
    summary = Summary(
        name=run.name,
        objectives=goals,
        rows=table,
        facts={
            "sampler": sweep.config.sampler.kind,
            "pruner": sweep.config.pruner.kind,
            "storage": masked(sweep.storage),
        },
        confirm=commands(sweep, files, INTERPRETER_IN_FILES).get("confirm"),
    )
    write_whole(run / "trials.csv", csv_text(table, goals))
    from report.sweep.figures import draw_sweep
    from report.sweep.page import write_sweep_report

    figures = draw_sweep(table, goals, sweep.space.distributions, run / "figures")
    page = write_sweep_report(run, summary, figures)
    print(f"\n{text_table(table, goals)}\ntable: {run / 'trials.csv'}\nreport: {page}")
    for path, row in files.items():
        own = " (the file's own values)" if row.baseline else ""
        print(f"trial {row.number}{own}: {path}")
    left = commands(sweep, files, interpreter_typed())
    if "rerun" in left:
        print(f"next: {left['rerun']}")
    if "confirm" in left:
        words = "The best of many trials looks better than it is; with fresh seeds:"
        print(f"{words}\n  {left['confirm']}")
    if ended and not files:
        reasons = "; ".join(dict.fromkeys(row.reason or row.state for row in table))
        raise ValueError(f"no trial was done: {reasons:.500}")


def write_experiments(sweep: Sweep, table: Sequence[TrialRow]) -> dict[Path, TrialRow]:
    """Write the best trials' experiments, each of which runs as it is.

    Others stand for seeds of the trials in `compare.seeds`: no layout is compared by the trainings
    that it was chosen for.
    """
    several = len(sweep.config.objectives) > 1
    wanted = {
        sweep.run / (f"pareto/{row.number:04d}.yaml" if several else "best.yaml"): row
        for row in front(table)
    }
    own, used = sweep.experiment.compare.seeds, sweep.config.seeds
    fresh = (seed for seed in count() if seed not in {*own, *used})
    seeds = {"compare.seeds": [next(fresh) if seed in used else seed for seed in own]}
    for old in written_experiments(sweep.run):
        if old not in wanted:
            old.unlink()
    for path, row in wanted.items():
        path.parent.mkdir(exist_ok=True)
        chosen = with_settings(chosen_experiment(sweep, row.params), seeds)
        write_whole(path, dump_experiment(chosen))
    return wanted


def written_experiments(run: Path) -> list[Path]:
    """The experiments of best trials that are there; files of other names are the user's."""
    return [*run.glob("best.yaml"), *run.glob("pareto/[0-9][0-9][0-9][0-9]*.yaml")]


def commands(sweep: Sweep, files: Mapping[Path, TrialRow], interpreter: str) -> dict[str, str]:
    """What to type to use the best experiment and to confirm it; of several objectives none is."""
    if not len(files) == len(sweep.config.objectives) == 1:
        return {}
    ((best, row),) = files.items()
    # With runs of their own below the sweep's: by their files' names alone those of all sweeps
    # would share runs/best and runs/confirm.
    run = best.with_suffix("")
    begin = "search.py" if chosen_experiment(sweep, row.params).has_search else "derive.py"
    found = {"rerun": command(begin, best, run=run, interpreter=interpreter)}
    if not row.baseline:
        both = f"{best}", f"{sweep.own / 'experiment.yaml'}", "--run", f"{sweep.run / 'confirm'}"
        found["confirm"] = shlex.join([interpreter, "-m", "tools.confirm", *both])
    return found
