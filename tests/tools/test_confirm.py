"""Two experiments with fresh seeds: pairs, intervals, and what cannot be compared."""

import csv
import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from model import load_architecture
from nas.costs.latency import Latencies
from nas.statistics.intervals import paired_interval, smallest_visible
from pipeline.confirm import check_sides, train_sides, verdict_line
from pipeline.experiment import load_experiment, with_settings
from tests.refusal import refused
from tests.runs import run_jobs_here, settings
from tests.sweeping import add_sweep
from tools import confirm
from training.signals import StopRequest

SMALL = settings(
    "search.steps=6", "search.optimiser.warmup_steps=1", "retrain.steps=4", "run.figures=false"
)


LOSSY = "{kind: bpe, vocabulary: 300, lower_case: true}"
SET_LOSSY = ["--set", f"data.tokenizer={LOSSY}"]
LOW, HIGH = [1.0, 1.1, 0.9], [1.5, 1.61, 1.39]


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (LOW, HIGH, "a is better than b (the smallest visible difference is 0."),
        (HIGH, LOW, "a is worse than b (the smallest visible difference is 0."),
        (LOW, [1.1, 1.0, 0.91], "no difference shown between a and b (the smallest visible "),
        ([1.0], [2.0], "not testable with one seed"),
    ],
)
def test_the_verdict_is_that_of_the_paired_interval(
    a: list[float], b: list[float], words: str
) -> None:
    line = verdict_line({"a": a, "b": b})
    assert line.startswith(words)
    if len(a) > 1:
        mean, half = paired_interval([x - y for x, y in zip(a, b, strict=True)])
        than = "higher" if mean > 0 else "lower"
        assert f"): test bits per byte is {abs(mean):.4f} {than} (95% interval " in line
        assert f" {smallest_visible(half, 3):.4f} bits per byte)" in line
        assert f"interval {mean - half:+.4f} to {mean + half:+.4f}, 3 seeds); each seed" in line


@pytest.mark.parametrize(
    ("old", "new", "more", "message"),
    [
        ("segment: 16", "segment: 8", [], "other and tiny differ in data.segment"),
        ("validate_every: 10", "validate_every: 7", [], "other would have 4 validations, tiny 3,"),
        ("  steps: 25", "  epochs: 1", [], "other would have 10 validations, tiny 3,"),
        ("{kind: bytes}", LOSSY, [], "other: data.tokenizer: it does not give the text back"),
        ("n_blocks: 4", "n_blocks: 3", SET_LOSSY, "data.tokenizer: it does not give the text"),
        ("seeds: [0]", "seeds: [1]", [], "other and tiny are the same experiment"),
        ("n_blocks: 4", "n_blocks: 3", ["--set", "derive.searches=[0,1]"], "derive.searches: each"),
    ],
)
def test_experiments_that_cannot_be_compared_are_refused(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], old: str, new: str, more: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("pipeline.confirm.train_sides", lambda *_, **__: pytest.fail("it trains"))
    other = tmp_path / "other.yaml"
    assert old in experiment_file.read_text()
    other.write_text(experiment_file.read_text().replace(old, new))
    arguments = [other, experiment_file, "--run", tmp_path / "run", *more]
    assert message in refused(confirm.main, capsys, *arguments)
    assert not list(tmp_path.glob("run/*/seed-*"))


@pytest.mark.parametrize("place", [0, 1])
def test_seeds_of_a_sweep_are_refused(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], place: int,
) -> None:  # fmt: skip
    monkeypatch.setattr("pipeline.confirm.train_sides", lambda *_, **__: pytest.fail("it trains"))
    files = [experiment_file, tmp_path / "other.yaml"]
    files[1].write_text(experiment_file.read_text().replace("n_blocks: 4", "n_blocks: 3"))
    add_sweep(files[place], trials=2, more="  seeds: [4, 6]\n")
    arguments = [*files, "--run", tmp_path / "run", "--seeds", "5,6"]
    said = refused(confirm.main, capsys, *arguments).splitlines()[-1]
    name = files[place].stem
    assert said.startswith(f"--seeds 5, 6: 6 is one of the sweep.seeds of {name} (4, 6), which ")
    assert said.endswith("; give other seeds")
    assert not (tmp_path / "run").exists()


def test_every_seed_is_a_derivation_of_its_own(
    experiment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Any] = []
    monkeypatch.setattr("pipeline.confirm.run_all", lambda given, **how: jobs.extend(given))
    sides = {
        "trained": load_experiment(experiment_file, ["derive.method=trained"]),
        "random": load_experiment(experiment_file, ["derive.method=random", "derive.seed=7"]),
    }
    train_sides(sides, [100, 101], tmp_path, workers=1, stop=StopRequest())
    made = [(job.name, job.experiment.run.seed, job.experiment.derive.seed) for job in jobs]
    assert made == [
        ("trained, seed 100", 100, 100),
        ("random, seed 100", 100, 107),
        ("trained, seed 101", 101, 101),
        ("random, seed 101", 101, 108),
    ]
    scripts = [job.scripts for job in jobs[:2]]
    assert scripts == [("search", "derive", "retrain"), ("derive", "retrain")]
    timed = {"one": load_experiment(experiment_file, ["derive.budget.decode=0.9x"])}
    with pytest.raises(ValueError, match=r"derive\.budget\.decode: times need the machine alone"):
        train_sides(timed, [100], tmp_path, workers=2, stop=StopRequest())
    train_sides(timed, [100], tmp_path, workers=1, stop=StopRequest())


def test_seeds_that_would_be_one_training_are_refused(experiment_file: Path) -> None:
    drawn, same = (
        load_experiment(experiment_file, ["derive.method=interleaved", f"model.dropout={rate}"])
        for rate in (0.1, 0)
    )
    check_sides({"drawn": with_settings(drawn, {"retrain.start": "m"}), "same": same}, [7, 8])
    with pytest.raises(ValueError, match=r"^retrain\.start: seeds 7, 8 begin with one model"):
        check_sides({"drawn": drawn, "same": with_settings(same, {"retrain.start": "m"})}, [7, 8])


@pytest.mark.slow
def test_both_sides_train_with_every_seed_and_stand_in_one_table(
    experiment_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("pipeline.confirm.run_all", run_jobs_here)

    def unlike(trainings: dict[str, list[Path]]) -> str:
        folders = [folder for of_side in trainings.values() for folder in of_side]
        assert all((folder / "environment.json").exists() for folder in folders)
        return f"{len(folders)} trainings of {', '.join(trainings)} are unlike"

    monkeypatch.setattr("pipeline.confirm.unlike_conditions", unlike)
    other = tmp_path / "three.yaml"
    other.write_text(experiment_file.read_text().replace("n_blocks: 4", "n_blocks: 3"))
    arguments = [str(experiment_file), str(other), "--run", str(tmp_path / "run"), *SMALL]
    arguments += ["--seeds", "7,8", "--workers", "2"]
    assert confirm.main(arguments) == 0
    with (tmp_path / "run" / "confirm.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    sides = [(row["experiment"], row["seed"]) for row in table]
    assert sides == [("tiny", "7"), ("tiny", "8"), ("three", "7"), ("three", "8")]
    assert {len(row["layout"].split()) for row in table[:2]} == {4}
    assert {len(row["layout"].split()) for row in table[2:]} == {3}
    for row in table:
        results = (tmp_path / "run" / row["experiment"] / f"seed-{row['seed']}").glob(
            "retrain/*/*/result.json"
        )
        (result,) = (json.loads(path.read_text()) for path in results)
        assert row["test_bits_per_byte"] == str(result["test"]["bits_per_byte"])
    said = json.loads((tmp_path / "run" / "confirm.json").read_text())
    verdict = said["verdict"]
    assert said["remarks"] == ["4 trainings of tiny, three are unlike"]
    assert verdict in capsys.readouterr().out
    assert ", 2 seeds)" in verdict

    monkeypatch.setattr("pipeline.confirm.train_sides", lambda *_, **__: None)
    folders = [tmp_path / "run" / name / "seed-7/architecture.json" for name in ("tiny", "three")]
    shutil.copy(*folders)
    timed = Mock(return_value=Latencies(defaultdict(lambda: 2.0), "", {}))
    monkeypatch.setattr("pipeline.confirm.time_models", timed)
    assert confirm.main(arguments) == 0
    assert "derived one network with seeds 7\n" in capsys.readouterr().out
    assert len(timed.call_args.args[1]) == 3, "a network is timed once"

    text, digest = folders[0].read_text(), load_architecture(folders[0]).tokenizer.digest
    folders[0].write_text(text.replace(digest, "0" * len(digest)))
    assert confirm.main(arguments) == 0
    assert "latency: not measured: the two read other tokens" in capsys.readouterr().out
    assert timed.call_count == 1, "by the ids of one text the other's model may have no row"
