"""compare.py --jobs: the same trainings in several processes, stopped and failing together."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import compare
from tests.runs import ROOT, assert_same, refused, run, settings
from training.run_dir import FolderLock

FEW = ["compare.opponents=[interleaved, par]", "compare.seeds=[0, 1]", "run.figures=false"]


@pytest.mark.slow
def test_several_at_a_time_give_what_one_after_the_other_gives(
    derived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(compare, derived, *settings(*FEW))
    one = json.loads((derived / "comparison.json").read_text())
    other = tmp_path / "other"
    (other / "architectures").mkdir(parents=True)
    for name in ("architecture.json", "architectures/experiment.yaml"):
        (other / name).write_bytes((derived / name).read_bytes())
    capsys.readouterr()
    run(compare, other, "--jobs", 3, *settings(*FEW))
    said = capsys.readouterr().out
    assert said.count("in its own process") == 6
    assert said.count(", which is done") == 6, "nothing is trained twice"
    two = json.loads((other / "comparison.json").read_text())
    for mine, its in zip(one["rows"], two["rows"], strict=True):
        assert mine["nats_per_token"] == its["nats_per_token"]
        for seed in (0, 1):
            folder = f"retrain/{mine['name']}/seed-{seed}"
            assert_same(derived / folder, other / folder)


def test_a_training_that_fails_is_named_and_the_others_end(
    derived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = derived / "retrain/par-5/seed-1"
    broken.mkdir(parents=True)
    (broken / "identity.json").write_text('{"another": "experiment"}')
    line = refused(compare, capsys, derived, "--jobs", 2, *settings(*FEW))
    assert "holds another experiment" in line


@pytest.mark.slow
def test_a_signal_stops_all_and_the_same_command_goes_on(derived: Path) -> None:
    steps = [*FEW, "retrain.steps=4000", "retrain.optimiser.warmup_steps=1"]
    command = [sys.executable, "compare.py", str(derived), "--jobs", "2", *settings(*steps)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    folders = [derived / f"retrain/{name}/seed-0" for name in ("layout-addi", "interleaved")]
    until = time.monotonic() + 120
    while not all((folder / "last.safetensors").exists() for folder in folders):
        assert time.monotonic() < until
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM; the state is saved" in error
    for folder in folders:
        rows = (folder / "metrics.jsonl").read_text().splitlines()
        assert json.loads(rows[-1])["step"] < 4000
        FolderLock(folder).release()  # nobody else holds it any more


@pytest.mark.parametrize("jobs", ["0", "65", "two"])
def test_a_number_of_jobs_that_cannot_be_is_refused(
    derived: Path, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    assert "--jobs: " in refused(compare, capsys, derived, "--jobs", jobs)
