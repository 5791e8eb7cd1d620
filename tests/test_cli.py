"""What every script shows of its command line, and which saved experiment it takes."""

import importlib
import shlex
import sys
from pathlib import Path

import pytest
import torch

from pipeline import cli, exit_codes
from tests.runs import refused
from training.run_dir import environment, record_resume
from training.signals import Stopped

URL = "sweep.storage=postgresql://u:secret@h/db"


@pytest.fixture
def _called_with_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sweep.py", "x.yaml", "--set", URL])


@pytest.mark.usefixtures("_called_with_a_password")
def test_a_command_to_go_on_with_asks_for_the_password_and_shows_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stopped() -> None:
        raise Stopped(2)

    def full() -> None:
        raise OSError("full")

    def interrupted() -> None:
        raise KeyboardInterrupt

    for run in (stopped, full, interrupted):
        with exit_codes.run_errors():
            run()
        said = capsys.readouterr().err
        assert "sweep.py x.yaml --set 'sweep.storage=postgresql://u:***@h/db'" in said
        assert "# put the password in the place of ***" in said
    with pytest.raises(SystemExit), exit_codes.user_errors():
        interrupted()
    assert "secret" not in capsys.readouterr().err
    assert "secret" not in cli.command("search.py", Path("r"), URL)


def test_a_command_without_a_password_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sweep.py", "x.yaml", "--set", "a=[1, 2]"])
    assert cli.resume_command().endswith("sweep.py x.yaml --set 'a=[1, 2]'")


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("python", "python"),
        ("python3.12", "python3.12"),
        (".venv/bin/python", ".venv/bin/python"),
        ("HERE/.venv/bin/python", ".venv/bin/python"),
        ("HERE/python", "./python"),
        ("/opt/venv/bin/python", "/opt/venv/bin/python"),
    ],
)
def test_a_command_on_the_screen_names_the_interpreter_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, shown: str
) -> None:
    """A plain `python` may be another one, without torch; in a file it is said all the same."""
    monkeypatch.chdir(tmp_path)
    here = str(Path.cwd())
    monkeypatch.setattr(sys, "orig_argv", [typed.replace("HERE", here)])
    for script in ("search.py", f"{here}/search.py"):
        monkeypatch.setattr(sys, "argv", [script, "x.yaml"])
        assert cli.resume_command() == f"{shown} search.py x.yaml"
        assert cli.command("derive.py", Path("runs/x")) == f"{shown} derive.py runs/x"
    monkeypatch.setattr(sys, "argv", [f"{here}/tools/rank.py", "x.yaml"])
    assert cli.resume_command() == f"{shown} -m tools.rank x.yaml"


def test_a_command_in_a_file_names_no_interpreter_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "orig_argv", ["/opt/venv/bin/python"])
    monkeypatch.setattr(sys, "argv", ["sweep.py", "x.yaml"])
    kept = cli.command("search.py", Path("runs/x"), interpreter=cli.INTERPRETER_IN_FILES)
    assert kept == "python search.py runs/x"


@pytest.mark.usefixtures("_called_with_a_password")
def test_no_password_of_a_command_is_recorded(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    path = tmp_path / "environment.json"
    path.write_text(environment(cpu, {}))
    record_resume(tmp_path, cpu, 3, {"micro_batches": 1})
    assert path.read_text().count("sweep.storage=postgresql://u:***@h/db") == 2
    assert "secret" not in path.read_text()


def test_a_sweep_takes_its_own_experiment_and_a_search_its_own(tmp_path: Path) -> None:
    for name in ("search/seed-0", "sweep"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "experiment.yaml").touch()
    searched, swept = cli.parser(""), cli.parser("", saved=cli.SAVED_OF_SWEEP)
    assert (
        cli.locate(searched.parse_args([str(tmp_path)])).file
        == tmp_path / "search" / "seed-0" / "experiment.yaml"
    )
    found = cli.locate(swept.parse_args([str(tmp_path)]))
    assert found.file == tmp_path / "sweep" / "experiment.yaml"
    (tmp_path / "sweep" / "experiment.yaml").unlink()
    assert cli.locate(swept.parse_args([str(tmp_path)])).file.parent.name == "seed-0"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("search", "search.py: the following arguments are required: experiment; --help"),
        ("search tiny.yaml more", "unrecognized arguments: more; --help"),
        ("search tiny.yaml --set", "argument --set: expected one argument; --help"),
        ("search tiny.yaml --set x", "--set x: expected KEY=VALUE, for example"),
        ("search tiny.yaml --run train.txt", "--run train.txt: train.txt is a file; give a dir"),
        ("derive tiny.yaml --run train.txt/x", "train.txt is a file; give a directory"),
        ("retrain tiny.yaml --run train.txt", "--run train.txt: train.txt is a file; give a dir"),
        ("compare tiny.yaml --run train.txt", "--run train.txt: train.txt is a file; give a dir"),
        ("tools.rank tiny.yaml --run train.txt", "train.txt is a file; give a directory"),
        ("tools.layoutbench make tiny.yaml --run train.txt", "is a file; give a directory"),
        ("tools.layoutbench make .", ".: a directory; give a YAML file"),
        ("tools.confirm tiny.yaml .", ".: a directory; give a YAML file"),
        ("tools.options x", "python -m tools.options: unrecognized arguments: x; --help"),
        ("tools.evaluate m --data x --window x", "--window: expected a number or none, found 'x'"),
        ("sweep tiny.yaml --workers x", "argument --workers: expected 1 or more, found 'x'"),
        ("retrain tiny.yaml --layout 'x y z w'", "position 4: 'w' is none of a (attention)"),
        ("derive tiny.yaml --run run", "pi.npz: not found; run search.py first, or take what was "
         "searched: seed-3, seed-7"),
    ],
)  # fmt: skip
def test_a_clumsy_use_is_one_line_and_code_2(
    experiment_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    said: str,
) -> None:
    monkeypatch.chdir(experiment_file.parent)
    for seed in (3, 7):
        Path(f"run/search/seed-{seed}").mkdir(parents=True)
        Path(f"run/search/seed-{seed}/pi.npz").touch()
    script, *arguments = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *arguments])
    assert said in refused(importlib.import_module(script), capsys, *arguments)
