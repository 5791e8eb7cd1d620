"""What a trial's run directory and its log say."""

import json
import shutil
from pathlib import Path

import pytest

from model import load_architecture
from pipeline.sweep.trial import expected_folders, last_words, read_outcome, reason_of, search_curve
from utils.files import write_whole


@pytest.fixture
def run(undisturbed: Path, tmp_path: Path) -> Path:
    """A run with search, layout and retraining."""
    folder = Path(shutil.copytree(undisturbed, tmp_path / "run"))
    (result,) = folder.glob("retrain/*/seed-0")
    shutil.copy(result / "architecture.json", folder)
    return folder


def test_the_objectives_are_those_of_the_run_s_own_files(run: Path) -> None:
    (path,) = run.glob("retrain/*/seed-0/result.json")
    result = json.loads(path.read_text())
    result["test"]["bits_per_byte"] = result["valid"]["bits_per_byte"] - 1.0
    path.write_text(json.dumps(result))
    found = read_outcome(run, 0, ["retrained"])
    assert found.objectives["retrained"] == result["valid"]["bits_per_byte"]
    assert found.facts["layout"] == "a d a d"
    assert found.objectives["parameters"] == found.facts["parameters"]
    assert set(found.objectives) == {"retrained", "onehot", "flops", "parameters"}


def test_onehot_is_the_last_validation_and_not_the_lowest(run: Path) -> None:
    path = run / "search" / "seed-0" / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    bits = {10: 3.0, 20: 1.0, 30: 2.0}
    for row in rows:
        if row.get("kind") == "valid" and row.get("net") == "onehot":
            row["bits_per_byte"] = bits[row["step"]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert search_curve(run, 0, "onehot") == bits
    assert search_curve(run, 0, "soft") != bits
    found = read_outcome(run, 0, ["onehot"])
    assert found.objectives["onehot"] == 2.0
    assert "retrained" not in found.objectives


ATTEMPT = "--- attempt: scripts search derive retrain\n"
ERROR = "Traceback (most recent call last):\nRuntimeError: the matrix is not there\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no word in its log"),
        ("one\n\ntwo\n\n", "two"),
        (ERROR + "and how\n", "RuntimeError: the matrix is not there"),
        (ATTEMPT + ERROR + ATTEMPT + "step 5\nno space left\n", "no space left"),
        (ATTEMPT + ERROR + ATTEMPT, "no word in its log"),
        (ATTEMPT + "step 5\n" + ATTEMPT + ERROR, "RuntimeError: the matrix is not there"),
        (ERROR + ATTEMPT + "step 5 of 9\n" * 4000, "step 5 of 9"),
    ],
)
def test_the_last_words_are_those_of_the_last_attempt(
    tmp_path: Path, text: str, words: str
) -> None:
    log = tmp_path / "trial.log"
    log.write_text(text)
    assert last_words(log) == words


def test_the_folders_of_the_phases_are_known_by_name(run: Path) -> None:
    search = run / "search" / "seed-0"
    (result,) = run.glob("retrain/*/seed-0/result.json")
    assert expected_folders(run, 0) == [search, result.parent]
    assert all((folder / "metrics.jsonl").exists() for folder in expected_folders(run, 0))
    (run / "architecture.json").write_text("{")
    assert expected_folders(run, 0) == [search]
    (run / "architecture.json").unlink()
    assert expected_folders(run, 0) == [search]


def test_steps_that_a_run_went_on_from_are_those_of_its_own_phases(run: Path) -> None:
    search, retrained = expected_folders(run, 0)
    for folder, step in ((search, 7), (retrained, 14)):
        environment = json.loads((folder / "environment.json").read_text())
        environment["resumed"] = [{"step": step}]
        write_whole(folder / "environment.json", json.dumps(environment))
    steps = read_outcome(run, 0, ["retrained"]).facts["went_on_from"]
    assert steps == ["search step 7", "retrain step 14"]


@pytest.mark.parametrize("resumed", [[{}], [{"step": "x"}], [{"step": 1e999}], [7], 7])
def test_a_damaged_record_of_resumes_is_named(run: Path, resumed: object) -> None:
    path = run / "search" / "seed-0" / "environment.json"
    write_whole(path, json.dumps({"resumed": resumed}))
    with pytest.raises(ValueError, match=r"environment\.json: resumed: damaged; remove it"):
        read_outcome(run, 0, ["retrained"])


def test_an_architecture_without_costs_is_named(run: Path) -> None:
    path = run / "architecture.json"
    write_whole(path, load_architecture(path).model_copy(update={"costs": None}).to_json())
    with pytest.raises(ValueError, match=r"architecture\.json: costs: missing"):
        read_outcome(run, 0, ["retrained"])


def test_a_process_that_left_no_log_or_ended_by_a_nameless_signal_has_a_reason(
    tmp_path: Path,
) -> None:
    log = tmp_path / "trial.log"
    assert reason_of(2, log) == f"exit code 2: {log}: No such file or directory"
    log.write_text("step 5\n")
    assert reason_of(-15, log) == "ended by SIGTERM: step 5"
    assert reason_of(-50, log) == "ended by signal 50: step 5"
