"""What layouts within budgets of latency are worth beside interleaved: rates, choices, verdicts.

The file of arms (benchmarks/arms.py) says what is trained: layouts of every depth with each of
`rates`, by a seed of its own; then for each group the networks to choose among, by seeds that
choose; then the arms with fresh seeds. What is trained already is not trained again.

    python -m benchmarks.headline train configs/headline.yaml --arms FILE --csv FILE --workers 2
    python -m benchmarks.headline time configs/headline.yaml --arms FILE --csv FILE --json FILE
    python -m benchmarks.headline report --arms FILE --csv FILE [--times FILE]

report: the choices, test nats of every arm, and the comparisons that the arms' file states. Primary
ones: paired differences over seeds (Student's t); one with a margin asks for a one-sided 95% bound
below it. Secondary ones: the difference of two arms' means in a least squares fit of arms and seeds
to all trainings with fresh seeds, with its residuals' deviation; p values by Holm's method.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.arms import (
    COLUMNS,
    RATE,
    Arm,
    Arms,
    Comparison,
    Group,
    Settings,
    arms_of,
    best_once,
    choice_nats,
    chosen,
    identity,
    layout_of,
    rate_of,
    rows_of_network,
)
from benchmarks.arms_fit import fitted, holm
from benchmarks.layout_rows import WORKLOADS, Commands, Row, claim, rows_of, train_rows, write_times
from model import LanguageModel, parse_layout
from nas.statistics.intervals import paired_interval
from pipeline.context import RunPlan, set_up
from pipeline.costs import measurement_of
from pipeline.experiment import Experiment, load_experiment, with_settings
from pipeline.jobs import Job, layout_job
from training.signals import StopRequest

# A network, how it is trained, its rate and its seed.
Training = tuple[str, Settings, float, int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, time=time, report=report)
    for name, one in commands.named.items():
        if name != "report":
            one.add_argument("experiment", type=Path)
            one.add_argument("--set", action="append", default=[], help="override one key")
            one.add_argument("--run", type=Path, default=Path("runs/headline-arms"))
        one.add_argument("--arms", type=Path, required=True, help="a YAML file")
        one.add_argument("--csv", type=Path, required=True, help="a row for each training")
    commands.add_files_of_stages()
    return commands.run(argv)


def train(arguments: argparse.Namespace) -> None:
    """Train the rates, then group by group what chooses and the arms."""
    arms, experiment = arms_of(arguments.arms), load_experiment(arguments.experiment, arguments.set)
    plan = set_up(experiment, arguments.run)
    claim(arguments.csv, plan)
    stop = StopRequest()
    with stop.listening():
        while trainings := next_trainings(arms, rows_of(arguments.csv)):
            train_rows(
                arguments.csv,
                COLUMNS,
                [(job_of(one, experiment, arguments.run), _row(one)) for one in trainings],
                workers=arguments.workers,
                stop=stop,
            )


def next_trainings(arms: Arms, rows: Sequence[Row]) -> list[Training]:
    """The first stage of which something is missing: what it lacks, in its order."""
    # Later stages cannot be asked for before earlier ones are trained.
    missing = (_missing(stage, rows) for stage in _stages(arms, rows))
    return next(filter(None, missing), [])


def _stages(arms: Arms, rows: Sequence[Row]) -> Iterator[list[Training]]:
    """The rates; then of each group what chooses, once and again, and its arms."""
    grid = ((layout, rate) for layout in arms.rate_layouts for rate in arms.rates)
    yield [(layout, {}, rate, arms.rate_seed) for layout, rate in grid]

    def with_rate(layout: str, settings: Settings, seed: int) -> Training:
        return layout, settings, rate_of(arms, layout, rows), seed

    for group in arms.groups:
        if group.among:
            first, *others = group.choice_seeds
            yield [with_rate(layout, {}, first) for layout in group.among]
            again = best_once(arms, group, rows)
            yield [with_rate(layout, {}, seed) for seed in others for layout in again]
        yield [
            with_rate(layout, arm.settings, seed)
            for arm in group.arms
            if (layout := layout_of(arms, group, arm, rows)) is not None
            for seed in arm.seeds
        ]


def _missing(stage: Sequence[Training], rows: Sequence[Row]) -> list[Training]:
    known = {identity(row) for row in rows}
    missing = list[Training]()
    for training in stage:
        if (one := identity(_row(training))) not in known:
            known.add(one)
            missing.append(training)
    return missing


def _row(training: Training) -> Row:
    layout, settings, rate, seed = training
    return {
        "layout": layout,
        "settings": json.dumps(settings, sort_keys=True),
        "lr": str(rate),
        "seed": str(seed),
    }


def job_of(training: Training, experiment: Experiment, run: Path) -> Job:
    """The job of a training; a layout of fewer blocks is filled up with what adds nothing."""
    layout, settings, rate, seed = training
    words = "-".join(f"{key}={value}" for key, value in sorted(settings.items()))
    changed = with_settings(experiment, {**settings, RATE: rate})
    letters = layout.ljust(changed.model.slots, "i")
    job = layout_job(changed, letters, seed, run / (words or "plain") / f"lr-{rate}")
    name = ", ".join(filter(None, [layout, words, f"lr {rate}", f"seed {seed}"]))
    return replace(job, name=name)


def time(arguments: argparse.Namespace) -> None:
    """Measure the latency and a training step of every arm, in turn, and write the medians."""
    arms, experiment = arms_of(arguments.arms), load_experiment(arguments.experiment, arguments.set)
    plan, rows = set_up(experiment, arguments.run), rows_of(arguments.csv)
    models = {
        name: model_of(set_up(with_settings(experiment, arm.settings), arguments.run), layout)
        for name, (arm, layout) in arms_by_name(arms, rows).items()
        if layout is not None
    }
    write_times(arguments.json, measurement_of(plan), models)


def model_of(plan: RunPlan, layout: str) -> LanguageModel:
    """A model of the sizes that an arm's settings give."""
    slots = parse_layout(layout.ljust(len(plan.slots), "i"), plan.candidates)
    return measurement_of(plan).build(slots)


def arms_by_name(arms: Arms, rows: Sequence[Row]) -> dict[str, tuple[Arm, str | None]]:
    """Every arm with its layout; None where it waits for its group's choice."""
    return {
        arm.name: (arm, layout_of(arms, group, arm, rows))
        for group in arms.groups
        for arm in group.arms
    }


def report(arguments: argparse.Namespace) -> None:
    """Print the rates, the choices, the arms and the comparisons."""
    arms, rows = arms_of(arguments.arms), rows_of(arguments.csv)
    times = json.loads(arguments.times.read_text()) if arguments.times else {}
    print("\n".join(rate_lines(arms, rows)))
    missing = next_trainings(arms, rows)
    if missing:
        print(f"not all is trained yet; next are {len(missing)} trainings")
    if missing and missing[0][-1] == arms.rate_seed:
        return
    for line in (line for group in arms.groups for line in choice_lines(arms, group, rows)):
        print(line)
    named = arms_by_name(arms, rows)
    nats = {
        name: nats_of(arm, layout, rate_of(arms, layout, rows), rows)
        for name, (arm, layout) in named.items()
        if layout is not None
    }
    trained = {name: of for name, of in nats.items() if of}
    for name, of in trained.items():
        print(arm_line(name, named[name][1] or "", of, trained, times))
    can = [one for one in arms.comparisons if {one.arm, *one.against} <= trained.keys()]
    for comparison in can:
        if comparison.primary:
            print(primary_line(comparison, trained))
    network_of = {name: (layout, str(arm.settings)) for name, (arm, layout) in named.items()}
    secondary = [one for one in can if not one.primary]
    print("\n".join(secondary_lines(secondary, trained, network_of)))


def rate_lines(arms: Arms, rows: Sequence[Row]) -> Iterator[str]:
    """Validation nats of every rate layout by rate."""
    for layout in arms.rate_layouts:
        nats = {
            float(row["lr"]): float(row["valid_nats"])
            for row in rows_of_network(layout, {}, rows)
            if int(row["seed"]) == arms.rate_seed
        }
        yield f"rate: {layout:13}" + "".join(
            f"  {rate:g}: {nats[rate]:.4f}" for rate in arms.rates if rate in nats
        )


def choice_lines(arms: Arms, group: Group, rows: Sequence[Row]) -> Iterator[str]:
    """Validation nats of the networks that a group chooses among, the best first."""
    nats = choice_nats(arms, group, rows)
    order = sorted(nats, key=lambda layout: min(nats[layout].values(), default=math.inf))
    for layout in order:
        words = "".join(f"  seed {seed}: {nats:.4f}" for seed, nats in nats[layout].items())
        yield f"{group.name}: {layout:13}{words}"
    if group.among:
        yield f"{group.name}: choice {chosen(arms, group, rows) or 'not made yet'}"


def secondary_lines(
    comparisons: Sequence[Comparison],
    nats: Mapping[str, Mapping[int, float]],
    network_of: Mapping[str, object],
) -> Iterator[str]:
    """Differences in a fit to all trainings, with p values by Holm's method.

    Arms that are one network count once in the fit, and are not compared with each other.
    """
    first: dict[object, str] = {}
    for name in nats:
        first.setdefault(network_of[name], name)
    same = {name: first[network_of[name]] for name in nats}
    different = [one for one in comparisons if same[one.arm] not in map(same.get, one.against)]
    yield from (
        f"secondary: {_names(one)}: one network" for one in comparisons if one not in different
    )
    if not different:
        return
    together: dict[str, dict[int, float]] = {}
    for name, of in nats.items():
        together.setdefault(same[name], {}).update(of)
    fit = fitted(together)
    yield f"one training: sd {fit.deviation_nats:.4f} nats, {fit.freedom} degrees of freedom"
    weighed = [
        fit.difference(same[one.arm], [same[name] for name in one.against]) for one in different
    ]
    adjusted = holm([p for _, _, p in weighed])
    for one, (mean, half, _), p in zip(different, weighed, adjusted, strict=True):
        yield f"secondary: {_names(one)} {mean:+.4f} +- {half:.4f} nats, p {p:.4f} (Holm)"


def nats_of(arm: Arm, layout: str, rate: float, rows: Sequence[Row]) -> dict[int, float]:
    """Test nats by fresh seed."""
    return {
        int(row["seed"]): float(row["test_nats"])
        for row in rows_of_network(layout, arm.settings, rows)
        if float(row["lr"]) == rate and int(row["seed"]) in arm.seeds
    }


def arm_line(
    name: str,
    layout: str,
    nats: Mapping[int, float],
    all_nats: Mapping[str, Mapping[int, float]],
    times: Mapping[str, Any],
) -> str:
    """An arm's mean test nats, what it is beside the first arm, and its costs."""
    first = next(iter(all_nats))
    shared = sorted(nats.keys() & all_nats[first].keys())
    less = [nats[seed] - all_nats[first][seed] for seed in shared]
    words = f"{name:32} {layout:13} n {len(nats)}  {np.mean([*nats.values()]):.4f} nats"
    if less and name != first:
        half = f" +- {paired_interval(less)[1]:.4f}" if len(less) > 1 else ""
        words += f"  {np.mean(less):+.4f}{half}"
    for workload in times.keys() & set(WORKLOADS):
        ms = times[workload]["median_ms"]
        if name in ms:
            words += f"  {workload} {ms[name] / ms[first]:.3f}x"
    return words


def primary_line(comparison: Comparison, nats: Mapping[str, Mapping[int, float]]) -> str:
    """The verdict of a paired comparison over the seeds that both have."""
    ones, (other,) = nats[comparison.arm], comparison.against
    less = [ones[seed] - nats[other][seed] for seed in sorted(ones.keys() & nats[other].keys())]
    mean, half = paired_interval(less)
    head = f"primary: {_names(comparison)} {mean:+.4f} +- {half:.4f} nats over {len(less)} seeds"
    if comparison.margin_nats is None:
        return f"{head}: {'better' if mean + half < 0 else 'not shown to be better'}"
    error = np.std(less, ddof=1) / math.sqrt(len(less))
    bound = mean + float(stats.t.ppf(0.95, len(less) - 1)) * float(error)
    kept = "not worse by" if bound < comparison.margin_nats else "not shown to be within"
    return f"{head}; one-sided bound {bound:+.4f}: {kept} {comparison.margin_nats} nats"


def _names(comparison: Comparison) -> str:
    others = comparison.against
    mean = f"the mean of {len(others)} ({others[0]} to {others[-1]})"
    return f"{comparison.arm} less {others[0] if len(others) == 1 else mean}"


if __name__ == "__main__":
    sys.exit(main())
