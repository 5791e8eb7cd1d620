"""The command that serves a sweep's study: it starts, it ends, and it refuses in one line."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest

from hpo.storage import open_storage
from tests.refusal import refused
from tools import serve as command

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run directory of a sweep with one finished trial."""
    pytest.importorskip("grpc")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage("journal", tmp_path / command.JOURNAL, create=True)
    study = optuna.create_study(study_name="sweep", storage=storage)
    study.tell(study.ask(), 2.5)
    return tmp_path


def refused_in_a_line(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that is said."""
    said = refused(command.main, capsys, *arguments)
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_interrupted(run: Path, number: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server: Any = subprocess.Popen(
        [sys.executable, "-m", "tools.serve", str(run), "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    where = f"grpc://127.0.0.1:{port}"
    first = server.stdout.readline()
    assert (
        first == f"serving {run / command.JOURNAL}; workers join with --set sweep.storage={where}\n"
    )
    storage = open_storage(where, run / "none", create=False)
    assert optuna.load_study(study_name="sweep", storage=storage).best_value == 2.5
    server.send_signal(number)
    assert server.communicate(timeout=60) == (
        "the server has ended; the study stays as it is\n",
        "loading optuna\n",
    )
    assert server.returncode == 0


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_in_use_is_refused(
    run: Path, shared: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        # As another server of gRPC has it: that one would get half of the calls.
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refused_in_a_line(capsys, run, "--port", port)
    assert said.startswith(f"127.0.0.1:{port} cannot be listened to (Address already in use)")


def test_a_foreign_address_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be listened to" in refused_in_a_line(capsys, run, "--host", "192.0.2.1")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x"])
def test_a_number_that_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["run", f"--port={port}"])
    assert caught.value.code == 2
    assert f"'{port}' is no port, expected 1 to 65535" in capsys.readouterr().err


def test_a_folder_without_a_sweep_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("grpc")
    said = refused_in_a_line(capsys, tmp_path)
    assert said == f"{tmp_path / command.JOURNAL}: no sweep there yet; start it with sweep.py\n"
    assert list(tmp_path.iterdir()) == []


def test_without_grpc_the_pip_line_is_given(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert "pip install 'grpcio'" in refused_in_a_line(capsys, run)
