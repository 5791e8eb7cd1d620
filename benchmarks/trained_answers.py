"""What fresh derivations by trainings answer, and whether fresh seeds find a known rule better.

Each derivation trains with seeds of its own. Its answer and the best rule that it trained in full
are then trained with judging seeds that took no part, the same for both.

    python -m benchmarks.trained_answers train benchmarks/six_blocks.yaml --json FILE --workers 2
    python -m benchmarks.trained_answers report --json FILE

What is done already is not done again. report: of each derivation its time, its answer, the rule,
and the judged difference in test nats; the wanted bound is 0.02 nats for the worst of them.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.keys import check_key, key_of
from benchmarks.layout_rows import Commands
from model import load_architecture
from pipeline import cli
from pipeline.experiment import Experiment, load_experiment
from pipeline.jobs import layout_job, run_all, training_result
from pipeline.plan import set_up
from training.run_dir import commit
from training.signals import StopRequest
from utils.files import read_object, write_whole

ROOT = Path(__file__).resolve().parents[1]
JUDGES, WANTED_NATS = (9000, 9001), 0.02
Record = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    commands = Commands(__doc__, train=train, report=report)
    commands.add_experiment("train", "runs/trained-answers")
    training = commands.named["train"]
    training.add_argument("--method", default="predictor")
    training.add_argument("--count", type=cli.number_from(1), default=10, metavar="N")
    training.add_argument("--workers", type=cli.number_from(1), default=1, metavar="N")
    for one in commands.named.values():
        one.add_argument("--json", type=Path, required=True)
    return commands.run(argv)


def train(arguments: argparse.Namespace) -> None:
    """Derive so many times, each in a folder of its own, and judge every answer.

    Raises:
        ValueError: the file's derivations are of another method or experiment.
    """
    experiment = load_experiment(arguments.experiment, arguments.set)
    key = key_of_derivations(arguments)
    records: dict[str, Record] = {}
    if arguments.json.exists():
        records = check_key(arguments.json, key, "give another --json")["derivations"]
    for number in range(arguments.count):
        if str(number) in records:
            continue
        record = derived(arguments, number)
        record["judged_nats"] = judged(
            experiment, (record["answer"], record["rule"]), arguments.run, arguments.workers
        )
        records[str(number)] = record
        content = {**key, "derivations": records}
        write_whole(arguments.json, json.dumps(content, indent=1) + "\n")
        print(line_of(number, record), flush=True)


def key_of_derivations(arguments: argparse.Namespace) -> dict[str, Any]:
    """What all derivations of a file share."""
    experiment = load_experiment(arguments.experiment, arguments.set)
    inputs = set_up(experiment, arguments.run).inputs()
    derive = experiment.derive.model_dump(mode="json", exclude={"seed", "method"})
    return {"method": arguments.method, **key_of(experiment, inputs), "derive": derive}


def derived(arguments: argparse.Namespace, number: int) -> Record:
    """One derivation by the command that a user types: its time, its answer, its best rule."""
    folder = arguments.run / f"derivation-{number}"
    command = [sys.executable, str(ROOT / "derive.py"), str(arguments.experiment), "--run", folder]
    command += ["--method", arguments.method, "--workers", str(arguments.workers)]
    for setting in (*arguments.set, f"derive.seed={number}"):
        command += ["--set", setting]
    begin = time.monotonic()
    subprocess.run(command, check=True)
    elapsed_s = time.monotonic() - begin
    architecture = load_architecture(folder / "architecture.json")
    with (folder / "architectures" / f"{architecture.name}.csv").open(encoding="utf-8") as file:
        rule = best_rule([*csv.DictReader(file)])
    assert architecture.evidence is not None
    return {
        "commit": commit(),
        "elapsed_s": round(elapsed_s, 1),
        "answer": architecture.letters().replace(" ", ""),
        "rule": rule,
        "words": architecture.evidence.method,
    }


def best_rule(rows: Sequence[Mapping[str, str]]) -> str:
    """The layout of the best rule that was trained in full."""
    full = [row for row in rows if row["rule"] and row["length"] == "full"]
    return min(full, key=lambda row: float(row["expected_nats"]))["layout"].replace(" ", "")


def judged(
    experiment: Experiment, layouts: Sequence[str], run: Path, workers: int
) -> dict[str, list[float]]:
    """Test nats of layouts by the judging seeds; those that are trained already are read."""
    jobs = {
        (layout, seed): layout_job(experiment, layout, seed, run / "judged")
        for layout in dict.fromkeys(layouts)
        for seed in JUDGES
    }
    waiting = [job for job in jobs.values() if training_result(job) is None]
    stop = StopRequest()
    with stop.listening():
        run_all(waiting, workers=workers, stop=stop, done=lambda job: None)
    nats: dict[str, list[float]] = {}
    for (layout, _), job in jobs.items():
        path = training_result(job)
        assert path is not None, job.folder
        nats.setdefault(layout, []).append(read_object(path)["test"]["nats_per_token"])
    return nats


def ahead_of_rule(record: Record) -> float:
    """The answer's mean test nats less the rule's, by the judging seeds."""
    nats = record["judged_nats"]
    return fmean(nats[record["answer"]]) - fmean(nats[record["rule"]])


def line_of(number: int | str, record: Record) -> str:
    """One derivation in words."""
    return (
        f"{number}: {record['elapsed_s']:.0f} s, answer {record['answer']}, best rule "
        f"{record['rule']}, judged {ahead_of_rule(record):+.4f} nats"
    )


def report(arguments: argparse.Namespace, say: Callable[[str], None] = print) -> None:
    """Print the derivations and the worst."""
    records = json.loads(arguments.json.read_text(encoding="utf-8"))["derivations"]
    for number, record in records.items():
        say(line_of(number, record))
    worst = max(map(ahead_of_rule, records.values()))
    slowest = max(record["elapsed_s"] for record in records.values())
    kept = "as wanted" if worst <= WANTED_NATS else "not as wanted"
    say(f"worst of {len(records)}: {worst:+.4f} nats ({kept}: {WANTED_NATS}); {slowest:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
