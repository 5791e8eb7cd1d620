"""What layouts within budgets of latency are worth beside interleaved: rates, choices, verdicts.

The file of arms (benchmarks/arms.py) says what is trained: layouts of every depth with each of
`rates`, by a seed of its own; then for each group the networks to choose among, by seeds that
choose; then the arms with fresh seeds. What is trained already is not trained again.

    python -m benchmarks.headline train configs/headline.yaml --arms FILE --csv FILE --workers 2
    python -m benchmarks.headline time configs/headline.yaml --arms FILE --csv FILE --json FILE
    python -m benchmarks.headline report --arms FILE --csv FILE [--times FILE] [--figure FILE]

report: what benchmarks/arms_report.py says; --figure draws the arms of primary comparisons (of all,
where none is primary). --also: files of rows of other experiments whose trainings of these networks
are the same.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.arms import COLUMNS, RATE, Training, arms_of, next_trainings, row_of
from benchmarks.arms_figure import arms_figure
from benchmarks.arms_report import figure_rows, report_lines, trained_arms
from benchmarks.keys import check_key
from benchmarks.layout_rows import Commands, Row, claim, rows_of, train_rows, write_times
from model import LanguageModel, parse_layout
from pipeline.costs import cost_model
from pipeline.experiment import Experiment, load_experiment, with_settings
from pipeline.jobs import Job, layout_job
from pipeline.plan import RunPlan, set_up
from report.plotting import png
from training.signals import StopRequest
from utils.files import read_object, write_whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, time=time, report=report)
    for name in ("train", "time"):
        commands.add_experiment(name, "runs/headline-arms")
    for one in commands.named.values():
        one.add_argument("--arms", type=Path, required=True, help="a YAML file")
        one.add_argument("--csv", type=Path, required=True, help="a row for each training")
        one.add_argument(
            "--also", nargs="*", type=Path, default=[], help="rows of trainings that are the same"
        )
    commands.add_files_of_stages()
    commands.named["report"].add_argument("--figure", type=Path, help="a PNG of all arms")
    return commands.run(argv)


def train(arguments: argparse.Namespace) -> None:
    """Train the rates, then group by group what chooses and the arms."""
    arms, experiment = arms_of(arguments.arms), load_experiment(arguments.experiment, arguments.set)
    plan = set_up(experiment, arguments.run)
    claim(arguments.csv, plan)
    stop = StopRequest()
    with stop.listening():
        while trainings := next_trainings(arms, known_rows(arguments)):
            train_rows(
                arguments.csv,
                COLUMNS,
                [(job_of(one, experiment, arguments.run), row_of(one)) for one in trainings],
                workers=arguments.workers,
                stop=stop,
            )


def known_rows(arguments: argparse.Namespace) -> list[Row]:
    """What is trained: by this experiment, and the same trainings by others.

    Raises:
        ValueError: another's rows were trained otherwise, but for the kinds to choose among.
    """
    key_file = arguments.csv.with_suffix(".json")
    for path in arguments.also if key_file.exists() else ():
        check_same_trainings(key_file, path.with_suffix(".json"))
    return [row for path in (arguments.csv, *arguments.also) for row in rows_of(path)]


def check_same_trainings(ours_file: Path, theirs_file: Path) -> None:
    """ValueError where the key of other rows differs, but for kinds that only one side knows."""
    remedy = "give no such --also"
    ours, theirs = read_object(ours_file), read_object(theirs_file)
    known = {one["label"]: one for one in ours["model"]["candidates"]}
    candidates = [known.get(one["label"], one) for one in theirs["model"]["candidates"]]
    key = {name: value for name, value in ours.items() if name != "commit"}
    key["model"] = {**ours["model"], "candidates": candidates}
    check_key(theirs_file, key, remedy)


def job_of(training: Training, experiment: Experiment, run: Path) -> Job:
    """The job of a training; a layout of fewer blocks is filled up with what adds nothing."""
    layout, settings, rate, seed = training
    words = "-".join(f"{key}={value}" for key, value in sorted(settings.items()))
    changed = with_settings(experiment, {**settings, RATE: rate})
    letters = layout.ljust(changed.model.n_blocks, "i")
    job = layout_job(changed, letters, seed, run / (words or "plain") / f"lr-{rate}")
    name = ", ".join(filter(None, [layout, words, f"lr {rate}", f"seed {seed}"]))
    return replace(job, name=name)


def time(arguments: argparse.Namespace) -> None:
    """Measure latency and a training step of all options and arms, in turn; write medians.

    Of the arms those that are trained; an option's first network, and beside it the one of the
    rates as the experiment trains it.
    """
    arms, experiment = arms_of(arguments.arms), load_experiment(arguments.experiment, arguments.set)
    timed = {one.name: (one.layouts[0], one.settings) for one in arms.options}
    if timed:
        timed[arms.rate_layouts[0]] = (arms.rate_layouts[0], {})
    trained = trained_arms(arms, known_rows(arguments))
    timed |= {name: (one.layout, one.arm.settings) for name, one in trained.items()}
    models = dict[str, LanguageModel]()
    for name, (layout, settings) in timed.items():
        models[name] = model_of(set_up(with_settings(experiment, settings), arguments.run), layout)
    write_times(arguments.json, cost_model(set_up(experiment, arguments.run)), models)


def model_of(plan: RunPlan, layout: str) -> LanguageModel:
    """A model of the sizes that an arm's settings give."""
    slots = parse_layout(layout.ljust(len(plan.slots), "i"), plan.candidates)
    return cost_model(plan).build(slots)


def report(arguments: argparse.Namespace) -> None:
    """Print what is known so far, and draw it."""
    arms, rows = arms_of(arguments.arms), known_rows(arguments)
    times = json.loads(arguments.times.read_text(encoding="utf-8")) if arguments.times else {}
    print("\n".join(report_lines(arms, rows, times)))
    drawn = figure_rows(arms, rows, times) if arguments.figure else []
    if drawn:
        margin = next((one.margin_nats for one in arms.comparisons if one.margin_nats), None)
        write_whole(arguments.figure, png(arms_figure(drawn, margin)))


if __name__ == "__main__":
    sys.exit(main())
