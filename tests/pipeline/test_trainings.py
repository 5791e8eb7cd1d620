"""What `predictor` trains: where it lies, that nothing is trained twice, and what is refused."""

import csv
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import derive
import retrain
from model import load_architecture
from nas.derivation.config import DeriveConfig
from pipeline import layout_scores
from pipeline.experiment import load_experiment
from pipeline.jobs import layout_job
from pipeline.layout_scores import LayoutTrainings
from report.derivation import read_trainings, trainings_sentence
from report.page import write_report
from tests.pipeline.conftest import Clock, PlanWith
from tests.runs import ROOT, Capture, refused, run, settings

METHOD = ("--method", "predictor")
# A space of six networks: all of them are probed.
SMALL = settings(
    "model.n_blocks=2", "model.candidates=[attention, dense, identity]", "derive.trainings.best=1",
    "retrain.steps=8", "retrain.optimiser.warmup_steps=1",
)  # fmt: skip


Derive = Callable[..., Any]


@pytest.fixture
def predict(experiment_file: Path, tmp_path: Path, jobs: list[str]) -> Derive:
    """Derive by trainings in tmp_path/run; the architecture."""

    def derived(*texts: str) -> Any:
        folder = tmp_path / "run"
        run(derive, experiment_file, "--run", folder, *METHOD, *SMALL, *settings(*texts))
        return load_architecture(folder / "architecture.json")

    return derived


def test_finals_train_rules_in_full_and_serve_the_predictor(
    predict: Derive, experiment_file: Path, tmp_path: Path, jobs: list[str], capsys: Capture
) -> None:
    folder = tmp_path / "run"
    run(derive, experiment_file, "--run", folder, "--method", "trained", *SMALL)
    chosen = load_architecture(folder / "architecture.json")
    assert chosen.name == "trained-0"
    assert chosen.evidence is not None
    assert "the best is a hand-written layout" in chosen.evidence.method
    assert not (folder / "trainings/half").exists()
    assert (folder / "architectures/trained-0.csv").exists()
    assert (folder / "trainings.png").exists()
    assert len(set(jobs)) == len(jobs) > 1
    page = write_report(folder).read_text()
    assert "nothing is known about other layouts" not in page
    assert re.search(rf"{len(jobs)} trainings of 1 layout chose it by validation loss\.", page)
    assert '<a href="#trainings">' in page
    capsys.readouterr()
    run(retrain, folder)
    assert (
        "trained again from scratch: the trainings that chose this layout"
        in capsys.readouterr().out
    )


def test_how_many_trainings_are_to_come_is_said_before_the_first_one(
    experiment_file: Path, tmp_path: Path, jobs: list[str], capsys: Capture
) -> None:
    run(derive, experiment_file, "--run", tmp_path / "run", *METHOD, *SMALL)
    shown = [line for line in capsys.readouterr().err.splitlines() if "loading" not in line]
    at_first = next(line for line in shown if " at most " in line)
    assert shown.index(at_first) < next(i for i, line in enumerate(shown) if line[0] == "[")
    most = int(re.findall(r"at most (\d+) trainings of 8 steps", at_first)[0])
    assert most >= len(jobs)
    assert "4 of half as many" in at_first
    assert "seeds=1, --set derive.trainings.half=4;" in shown[shown.index(at_first) + 1]
    done = [line for line in shown if line[0] == "["]
    # Of all stages, and the last one is the last.
    assert [line.split("]")[0].split("/")[0] for line in done] == [
        f"[{at}" for at in range(1, len(jobs) + 1)
    ]
    assert done[0].startswith(f"[1/{most}]")
    assert done[-1].startswith(f"[{len(jobs)}/{len(jobs)}]")


def tried(folder: Path) -> list[dict[str, str]]:
    paths = (folder / "architectures").glob("predictor*.csv")
    (path,) = (path for path in paths if not path.stem.endswith("-front"))
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_probes_are_of_half_length_and_finals_of_full(
    predict: Derive, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    architecture = predict()
    shown = capsys.readouterr().out
    run_dir = tmp_path / "run"
    results = {
        kind: {
            path.relative_to(run_dir / "trainings" / kind).parts[:2]: json.loads(path.read_text())
            for path in (run_dir / "trainings" / kind).glob("*/seed-*/retrain/*/seed-*/result.json")
        }
        for kind in ("half", "full")
    }
    assert {result["steps"] for result in results["half"].values()} == {4}
    assert {result["steps"] for result in results["full"].values()} == {8}
    assert {seed for _, seed in results["half"]} == {"seed-1000"}
    assert {seed for _, seed in results["full"]} == {"seed-1001", "seed-1002"}
    assert len(results["half"]) == 4
    assert len(jobs) == 4 + len(results["full"])
    assert not list(run_dir.glob("trainings/*/*/seed-*/**/*.safetensors")), "weights are not kept"

    rows = tried(run_dir)
    assert [row["length"] for row in rows] == ["half"] * 4 + ["full"] * len(results["full"])
    for row in rows:
        folder = row["layout"].replace(" ", ""), f"seed-{row['seed']}"
        result = results[row["length"]][folder]
        assert float(row["valid_nats"]) == result["valid"]["nats_per_token"]
    assert architecture.name == "predictor-0"
    assert architecture.letters() in {row["layout"] for row in rows if row["length"] == "full"}
    assert architecture.evidence.method in shown
    assert min(rows, key=lambda row: float(row["expected_nats"]))["layout"] in shown
    assert "\nexpected: at full length, by all of these trainings; sd: " in shown


def test_a_probe_has_no_budget_to_measure_or_fill(experiment_file: Path, tmp_path: Path) -> None:
    asked = ["derive.budget.latency=0.9x", "derive.fill=d_ffn", "derive.seed=3"]
    job = layout_job(load_experiment(experiment_file, asked), "ad", 5, tmp_path)
    expected = DeriveConfig(method="layout", layout="ad", seed=3)
    assert job.experiment.derive == expected


def test_what_is_trained_is_not_trained_again(
    predict: Derive, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = predict()
    count = len(jobs)
    assert "already trained" not in "".join(capsys.readouterr())
    before = tried(tmp_path / "run")
    assert predict() == first
    assert tried(tmp_path / "run") == before
    assert len(jobs) == count
    name, seed = jobs[2].split(", seed ")
    # Killed between a training's result and the end of its weights.
    left = next(tmp_path.glob("run/trainings/half/*/seed-*/retrain/*/seed-*")) / "last.safetensors"
    left.touch()
    shutil.rmtree(tmp_path / "run" / "trainings/half" / name.replace(" ", "") / f"seed-{seed}")
    assert predict() == first
    assert jobs[count:] == [jobs[2]]
    assert not left.exists()
    said = "".join(capsys.readouterr())
    assert re.search(r"already trained: (\d+) of \1\n", said), "by the second one"
    # Of finals is known only later that they are there too.
    assert re.search(rf"\[1/\d\] {jobs[2]}: validation", said)


@pytest.mark.slow
def test_other_seeds_are_trained_for_another_seed_of_the_derivation(
    predict: Derive, jobs: list[str]
) -> None:
    predict()
    count = len(jobs)
    predict("derive.seed=1")
    assert {name.split("seed ")[1] for name in jobs[count:]} == {"1100", "1101", "1102"}


def test_probes_of_another_experiment_or_text_are_refused(
    predict: Derive, experiment_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict()
    line = refused(
        derive, capsys, experiment_file, "--run", tmp_path / "run", *METHOD, *SMALL,
        *settings("model.d_model=24"),
    )  # fmt: skip
    assert "half: holds another experiment (model.d_model was 16, is 24)" in line
    for text in tmp_path.glob("*.txt"):
        text.write_text(text.read_text() + "More.\n")
    line = refused(derive, capsys, experiment_file, "--run", tmp_path / "run", *METHOD, *SMALL)
    assert "half: was started with another text (its hash was " in line


def test_a_training_that_diverged_counts_and_is_not_begun_again(
    predict: Derive, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run_here = layout_scores.run_all

    def diverging(jobs: Any, *, diverged: Any, **how: Any) -> None:
        lost = [job for job in jobs if job.name == "a i, seed 1000"]
        for job in lost:
            job.folder.mkdir(parents=True)
            diverged(job, "exit code 3: diverged at step 2: the loss is nan nats")
        run_here([job for job in jobs if job not in lost], diverged=diverged, **how)

    monkeypatch.setattr(layout_scores, "run_all", diverging)
    first = predict()
    assert "a i, seed 1000: exit code 3: diverged at step 2" in capsys.readouterr().err
    assert "a i, seed 1000" not in jobs
    (row,) = (row for row in tried(tmp_path / "run") if row["layout"] == "a i")
    assert row["valid_nats"] == "inf"
    assert first.letters() != "a i"
    count = len(jobs)
    assert predict() == first
    assert len(jobs) == count


def finished(folder: Path) -> dict[Path, int]:
    """Results of trainings, with the time at which each was written."""
    paths = folder.glob("trainings/*/*/seed-*/retrain/*/seed-*/result.json")
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in paths}


@pytest.mark.slow
def test_five_kills_with_two_workers_change_nothing(
    experiment_file: Path, tmp_path: Path, predict: Derive
) -> None:
    """At random moments after a little more was done; nothing that is done is done again."""
    expected = predict()
    folder, generator = tmp_path / "killed", random.Random(0)
    arguments = [
        sys.executable, "derive.py", str(experiment_file), "--run", str(folder), *METHOD, *SMALL,
        "--workers", "2",
    ]  # fmt: skip
    known: dict[Path, int] = {}
    for goal in range(5):
        process = subprocess.Popen(
            arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and len(finished(folder)) <= goal:
            time.sleep(0.01)
        time.sleep(generator.random())
        assert process.poll() is None, "ended before it could be killed"
        process.kill()
        process.wait()
        known |= finished(folder)
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert finished(folder).items() >= known.items(), "none was trained twice"
    assert finished(folder).keys() == finished(tmp_path / "run").keys()
    # Not its provenance: the repository may change while this runs.
    found = load_architecture(folder / "architecture.json")
    assert found.model_copy(update={"provenance": expected.provenance}) == expected
    assert tried(folder) == tried(tmp_path / "run")


def test_tables_and_words_are_of_what_was_chosen_where_the_best_exceeded_the_budget(
    experiment_file: Path, tmp_path: Path, clock: Clock, jobs: list[str]
) -> None:
    folder, budget = tmp_path / "run", "derive.budget.latency=0.9x"
    given = ["--method", "trained", *settings(budget, "retrain.steps=4"), *SMALL[-2:]]
    run(derive, experiment_file, "--run", folder, *given)
    best = load_architecture(folder / "architecture.json").letters()
    clock.whole = {best: 1.5}
    run(derive, experiment_file, "--run", folder, *given)
    chosen = load_architecture(folder / "architecture.json")
    assert chosen.letters() != best
    trainings = read_trainings(folder)
    assert trainings is not None
    assert trainings.full.index[0] == chosen.letters()
    assert [*trainings.full.index[trainings.full["answer"]]] == [chosen.letters()]
    assert f"The best other, {best}, is expected -" in trainings_sentence(trainings)


def test_short_trainings_are_half_as_long_in_every_stage(plan_with: PlanWith) -> None:
    plan = plan_with("retrain.steps=20", "retrain.fine_tune={steps: 10, lr: 1e-5}")
    half = LayoutTrainings(plan)._experiment("half").retrain
    assert (half.steps, half.fine_tune and half.fine_tune.steps) == (10, 5)
