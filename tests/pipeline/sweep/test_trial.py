"""A run of a trial: what is its own failure, and what only came from outside."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.experiment import Experiment, load_experiment
from pipeline.sweep import trial
from pipeline.sweep.child import LEFT_ALONE
from pipeline.sweep.process import Interrupted, TrialProcess, Watcher
from pipeline.sweep.trial import Failed, Limits, run_scripts, run_seed
from tests.pipeline.sweep.scripts import plant
from tests.pipeline.sweep.test_attempt import outcome
from tests.sweeping import Clock
from utils.files import append_line, write_whole

Sign = Callable[[TrialProcess | None], None]

# Counts its starts in the run folder; goes on until it is told to end, then is done.
SEARCH = """
import pathlib, signal, sys, time
def main(arguments):
    run = pathlib.Path(arguments[arguments.index("--run") + 1])
    starts = run / "starts"
    starts.write_text((starts.read_text() if starts.exists() else "") + "x")
    signal.signal(15, lambda *_: sys.exit(143))
    if len(starts.read_text()) < WANTED:
        print("ready", flush=True)
        time.sleep(600)
    return 0
"""


@pytest.fixture
def experiment(experiment_file: Path) -> Experiment:
    return load_experiment(experiment_file)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts stand-ins in the place of the scripts."""
    plant(tmp_path / "scripts", monkeypatch)
    monkeypatch.setattr(trial, "read_outcome", lambda *arguments: outcome(1.0))
    monkeypatch.setattr(trial, "SCRIPTS", ("stands_in", "says", "says"))

    def put(name: str, text: str) -> None:
        (tmp_path / "scripts" / f"{name}.py").write_text(text)

    return put


class Hooked(Watcher):
    """Does what a test wants with every sign and before every second start."""

    def __init__(
        self,
        sign: Sign = lambda process: None,
        confirm: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> None:
        environment = {"PYTHONDONTWRITEBYTECODE": "1"}
        more = {"is_ending": lambda: False, "wait_s": 1, **more}
        super().__init__(environment=environment, **more)
        self.sign = sign
        self.confirm = confirm


def test_a_process_that_was_ended_from_outside_is_started_again(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "3"))
    run, asked, killed = tmp_path / "run", [], set()

    def sign(process: TrialProcess | None) -> None:
        if process is not None and process.log.read_text().count("ready") > len(killed):
            killed.add(process._process.pid)
            os.kill(process._process.pid, signal.SIGTERM)

    result = run_seed(
        experiment,
        ["retrained"],
        run,
        Limits(None, 60),
        Hooked(sign, confirm=lambda: asked.append("again")),
    )
    assert result.objectives["retrained"] == 1.0
    assert (run / "starts").read_text() == "xxx"
    assert asked == ["again"] * 2


def test_a_process_whose_worker_was_silent_for_too_long_is_started_again(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "2"))
    run = tmp_path / "run"

    def sign(process: TrialProcess | None) -> None:
        if process is not None and process.log.read_text().count("--- attempt") == 2:
            process.beat()

    run_seed(experiment, ["onehot"], run, Limits(None, 60), Hooked(sign, alive_s=2.0))
    assert (run / "starts").read_text() == "xx"
    assert "the worker gave no sign for 2 s" in (run / "trial.log").read_text()


def ended(process: TrialProcess | None) -> bool:
    return process is not None and process.poll() is not None


def test_where_the_worker_must_stop_too_the_trial_is_interrupted_and_has_not_failed(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", f"def main(arguments):\n    return {LEFT_ALONE}\n")
    seen: list[TrialProcess | None] = []
    # The stop comes once the process has ended by itself.
    watcher = Hooked(seen.append, is_ending=lambda: bool(seen) and ended(seen[0]))
    with pytest.raises(Interrupted):
        run_seed(experiment, ["onehot"], tmp_path / "run", Limits(None, 60), watcher)


def test_a_trial_that_is_always_ended_from_outside_fails_in_the_end(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", "def main(arguments):\n    return 143\n")
    with pytest.raises(Failed, match="exit code 143"):
        run_seed(
            experiment,
            ["onehot"],
            tmp_path / "run",
            Limits(None, 60),
            Hooked(),
        )


def test_a_folder_that_cannot_be_written_is_no_fault_of_the_trial(
    experiment: Experiment, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        run_seed(
            experiment,
            ["onehot"],
            tmp_path / "file" / "run",
            Limits(None, 60),
            Hooked(),
        )


def test_silence_is_measured_from_the_start_and_from_every_change(tmp_path: Path) -> None:
    log, metrics, clock = tmp_path / "trial.log", tmp_path / "metrics.jsonl", Clock()
    log.write_text("of yesterday")
    os.utime(log, (1, 1))
    limits = Limits(None, 60, clock)

    def broken_after(elapsed_s: float, *files: Path) -> str | None:
        clock.now += elapsed_s
        return limits.broken(files)

    assert broken_after(50, log, metrics) is None
    for word in "abc":
        log.write_text(log.read_text() + word)
        os.utime(log, (1, 1))
        assert broken_after(50, log, metrics) is None
    metrics.write_text("{}")
    assert broken_after(50, log, metrics) is None
    metrics.unlink()
    assert broken_after(50, log, metrics) is None
    assert broken_after(50, log) is None  # another list of files is a change
    assert broken_after(60, log) is None
    assert broken_after(1, log) == "silent for 1 minutes (sweep.silent_minutes)"


def test_a_trial_has_its_time_whatever_it_says(tmp_path: Path) -> None:
    log, clock = tmp_path / "trial.log", Clock()
    limits = Limits(60, 600, clock)
    for word in "abc":
        log.write_text(word)
        clock.now += 20
        assert limits.broken([log]) is None
    log.write_text("busy")
    clock.now += 1
    assert str(limits.broken([log])).startswith("not done after 1 minutes")


def test_a_hanging_one_fails_with_its_stacks_in_the_log(
    experiment: Experiment, tmp_path: Path, scripts: Callable[[str, str], None]
) -> None:
    scripts("stands_in", SEARCH.replace("WANTED", "9"))
    log, clock = tmp_path / "run" / "trial.log", Clock()

    def sign(process: TrialProcess | None) -> None:
        if process is not None and "ready" in log.read_text():
            clock.now += 40

    with pytest.raises(Failed, match=r"silent for .*; trial\.log ends with where it was"):
        run_seed(experiment, ["onehot"], tmp_path / "run", Limits(None, 60, clock), Hooked(sign))
    assert 'stands_in.py", line' in log.read_text()


# As a retraining saves its model: whole folders come and go by other names.
RENAMES = """
import pathlib, time
def main(arguments):
    run = pathlib.Path(arguments[arguments.index("--run") + 1])
    folder = run / "retrain" / "a" / "seed-0"
    folder.mkdir(parents=True)
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        work = folder / ".model.1.tmp"
        (work / "parts").mkdir(parents=True)
        work.rename(folder / "model")
        (folder / "model" / "parts").rmdir()
        (folder / "model").rmdir()
    return 0
"""


def test_folders_that_a_run_renames_do_not_end_whoever_watches_it(
    experiment: Experiment,
    tmp_path: Path,
    scripts: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripts("stands_in", RENAMES)
    monkeypatch.setattr(trial, "_POLL_S", 0.0)
    result = run_seed(experiment, ["retrained"], tmp_path / "run", Limits(None, 60), Hooked())
    assert result.objectives["retrained"] == 1.0


def test_a_run_that_writes_to_the_metrics_of_its_retraining_alone_is_not_silent(
    undisturbed: Path, experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (architecture,) = undisturbed.glob("retrain/*/seed-0/architecture.json")
    run, name = tmp_path / "run", architecture.parents[1].name

    class Retraining:
        """A process that chooses its architecture first, and then writes a row at every look."""

        log = tmp_path / "run" / "trial.log"
        looks = 0

        def poll(self) -> int | None:
            self.looks += 1
            if self.looks == 1:
                write_whole(run / "architecture.json", architecture.read_bytes())
                (run / "retrain" / name / "seed-0").mkdir(parents=True)
            elif self.looks < 6:
                append_line(run / "retrain" / name / "seed-0" / "metrics.jsonl", "{}")
            return 0 if self.looks == 6 else None

    monkeypatch.setattr(trial, "_POLL_S", 0.0)
    monkeypatch.setattr(trial, "TrialProcess", lambda *arguments, **more: Retraining())
    # A look without a change would be silence.
    run_scripts(experiment, ["says"], run, Limits(None, 0.0), Hooked())


DAMAGES = {
    "an array": "[1]\n",
    "nested": "[" * 100_000 + "\n",
    "no bits": '{"step": 10, "kind": "valid", "net": "soft"}\n',
    "a word": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": "two"}\n',
    "no number": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": NaN}\n',
    "endless": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": 1e999}\n',
    "too large": f'{{"step": 9, "kind": "valid", "net": "soft", "bits_per_byte": {10**400}}}\n',
    "lossy": '{"step": 10, "kind": "valid", "net": "soft", "bits_per_byte": null}\n',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_curve_that_cannot_be_read_fails_the_trial_and_nobody_else(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    class Endless:
        """A process that has written its curve and goes on."""

        log = tmp_path / "trial.log"
        killed = False

        def poll(self) -> None:
            return None

        def kill(self) -> None:
            self.killed = True

    process = Endless()
    monkeypatch.setattr(trial, "TrialProcess", lambda *arguments, **more: process)
    folder = tmp_path / "run" / "search" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(DAMAGES[damage])
    with pytest.raises(Failed, match=r"metrics\.jsonl.*damaged|no bits per byte"):
        run_seed(experiment, ["retrained"], tmp_path / "run", Limits(None, 60), Hooked(prunes=True))
    assert process.killed
