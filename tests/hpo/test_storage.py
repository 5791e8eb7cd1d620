"""Storages of a study: each keeps the same promises, and faults are one line without a password."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from hpo import storage as storage_module
from hpo.config import check_address, shown, split_grpc, without_password
from hpo.queue import Queue
from hpo.retry import is_transient
from hpo.storage import open_storage
from tests.hpo.processes import let_go, started
from tests.postgres_server import QUOTED
from tests.sweeping import free_port
from utils.text import masked

ROOT = Path(__file__).resolve().parents[2]
STUDY = "sweep"
# The server's tests are slow ones: it takes seconds to start, and its own time to stop.
ON_A_SERVER = pytest.mark.slow
WHERES = [
    "journal",
    pytest.param("postgresql", marks=ON_A_SERVER),
]
# A trial's own path through a study takes a moment only; these bound a hang.
PATIENCE_S = 100


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


class Place:
    """Where a study is kept: what open_storage is given."""

    def __init__(self, where: str, journal: Path) -> None:
        self.where = where
        self.journal = journal

    def open(self, create: bool = False) -> Any:
        return open_storage(self.where, self.journal, create=create, say=pytest.fail)

    def study(self) -> optuna.Study:
        return optuna.load_study(study_name=STUDY, storage=self.open())


@pytest.fixture(params=WHERES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each kind of storage, with an empty study in it."""
    kind = request.param
    run = tmp_path / "run"
    journal = run / "sweep" / "study.journal"
    backing = "journal"
    if "postgresql" in kind:
        backing = request.getfixturevalue("postgres").database()
    made = Place(backing, journal)
    optuna.create_study(study_name=STUDY, storage=made.open(create=True), direction="minimize")
    return made


def test_a_study_keeps_what_it_is_given(place):
    study = place.study()
    study.enqueue_trial({"x": 0.5, "kind": "b"}, user_attrs={"root": 0})
    trial = study.ask()
    assert trial.suggest_float("x", 0, 1) == 0.5
    assert trial.suggest_categorical("kind", ["a", "b"]) == "b"
    trial.report(3.5, step=10)
    trial.report(2.5, step=20)
    trial.set_user_attr("host", {"name": "h\u00f6st", "pid": 12})
    study.set_user_attr("sweep", [1, None])
    study.tell(trial, 2.25)
    study.tell(study.ask(), state=TrialState.FAIL)

    again = place.study()
    first, second = again.trials
    assert (first.params, first.value) == ({"x": 0.5, "kind": "b"}, 2.25)
    assert first.intermediate_values == {10: 3.5, 20: 2.5}
    assert first.user_attrs == {"root": 0, "host": {"name": "h\u00f6st", "pid": 12}}
    assert second.state == TrialState.FAIL
    assert again.user_attrs == {"sweep": [1, None]}
    assert again.ask().number == 2


def test_a_finished_trial_cannot_be_told_again(place):
    study = place.study()
    study.tell(study.ask().number, 1.0)
    for each in (study, place.study()):
        with pytest.raises((optuna.exceptions.UpdateFinishedTrialError, ValueError)):
            each.tell(0, 2.0)
        with pytest.raises(optuna.exceptions.UpdateFinishedTrialError):
            each._storage.set_trial_state_values(each.trials[0]._trial_id, TrialState.FAIL)
    assert place.study().trials[0].value == 1.0


def test_the_same_study_cannot_be_made_twice(place):
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        optuna.create_study(study_name=STUDY, storage=place.open())


def test_processes_claim_distinct_waiting_trials(place):
    queue = Queue(place.study(), place.open(), retries=0)
    queue.fill([{"x": float(number)} for number in range(24)])
    claim = ("-m", "tests.hpo.claiming", place.where, place.journal)
    workers: list[Any] = [started(*claim) for _ in range(3)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
    said = let_go(workers, PATIENCE_S)
    claimed = [int(number) for out in said for number in out.split()]
    assert sorted(claimed) == list(range(24))
    values = [entry.last.values for entry in queue.entries()]
    assert values == [[float(number)] for number in range(24)]


@pytest.mark.parametrize("where", ["journal", pytest.param("postgresql", marks=ON_A_SERVER)])
def test_what_is_not_there_is_said_and_not_made(where, tmp_path, request):
    journal = tmp_path / "sweep" / "study.journal"
    if where == "postgresql":
        where = request.getfixturevalue("postgres").database()
    for _ in range(2):
        with pytest.raises(ValueError, match="no sweep there yet"):
            open_storage(where, journal, create=False)
    assert list(tmp_path.iterdir()) == []
    open_storage(where, journal, create=True)
    assert open_storage(where, journal, create=False).get_all_studies() == []


def test_a_plain_journal_imports_no_database_and_no_grpc(tmp_path):
    code = (
        "import sys, optuna; from pathlib import Path; from hpo.storage import open_storage;"
        "storage = open_storage('journal', Path(sys.argv[1]), create=True);"
        "study = optuna.create_study(storage=storage); study.tell(study.ask(), 1.0);"
        "print(sorted({'sqlalchemy', 'alembic', 'psycopg', 'grpc', 'google.protobuf', 'torch'}"
        " & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "study.journal")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "[]\n", done.stderr


REFUSED = [
    ("journl", "expected journal, postgresql://"),
    ("redis://u:secret@h", "expected journal"),
    ("postgres://u:secret@h/d", "write postgresql://"),
    ("sqlite:///x.db", "use journal"),
    ("postgresql://u:secret@h", "name of a database"),
    ("postgresql://u:secret@h:port/d", "port is malformed"),
    ("postgresql://u:secret@h:99999/d", "port is malformed"),
    ("postgresql://u:secret@[::1/d", "malformed"),
    ("postgresql://u:se@secret@h/d", "%40"),
    ("postgresql://u:1/secret@h/d", "%2F"),
    ("u:secret@h/d", "expected journal"),
    ("postgresql://u:se secret@h/d", "a space as %20"),
    ("grpc://h", "grpc://HOST:PORT"),
    ("grpc://:13000", "grpc://HOST:PORT"),
    ("grpc://h:0", "grpc://HOST:PORT"),
    ("grpc://h:1/x", "grpc://HOST:PORT"),
    ("grpc://u:secret@h:1", "grpc://HOST:PORT"),
]


@pytest.mark.parametrize(("where", "why"), REFUSED)
def test_a_malformed_address_is_one_line_with_the_key_and_no_password(where, why, tmp_path):
    with pytest.raises(ValueError, match=r"^sweep\.storage: ") as caught:
        open_storage(where, tmp_path / "study.journal", create=True)
    said = str(caught.value)
    assert why in said
    assert "\n" not in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("journal", "journal"),
        ("grpc://h:1", "grpc://h:1"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p:q@h:5/d?x=1", "postgresql://u:***@h:5/d?x=1"),
        ("postgresql+psycopg://u:p@q/r@h/d", "postgresql+psycopg://u:***@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d"),
        ("postgresql://u@h/d?password=p&a=b", "postgresql://u@h/d?password=***&a=b"),
        ("postgresql://h/d?a=b&sslpassword=p", "postgresql://h/d?a=b&sslpassword=***"),
        ("u:p@h/d", "u:***@h/d"),
        ("postgres//u:p@h/d", "postgres//u:***@h/d"),
        ("postgresql://u v:p q@h/d", "postgresql://u v:***@h/d"),
    ],
)
def test_a_password_is_never_shown(where, expected):
    assert shown(where) == expected
    without = re.sub(r":\*\*\*|[?&]\w+=\*\*\*", "", expected)
    assert without_password(where) == without.replace("d&", "d?")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("sweep.storage=postgresql://u:p@h/d", "sweep.storage=postgresql://u:***@h/d"),
        ("--storage=postgresql+x://u:p:@q@h/d?a=b", "--storage=postgresql+x://u:***@h/d?a=b"),
        (
            "sweep.storage=postgresql://h/d?password=p&a=b",
            "sweep.storage=postgresql://h/d?password=***&a=b",
        ),
        ("x=[https://h:80/a, b]", "x=[https://h:80/a, b]"),
        ("a:b@c", "a:b@c"),
        ("sweep.storage=u:p@h/d", "sweep.storage=u:***@h/d"),
        ("sweep.storage=postgresql://u://p@h/d", "sweep.storage=postgresql://u:***@h/d"),
        ("", ""),
    ],
)
def test_an_argument_is_shown_without_its_password(argument, expected):
    assert masked(argument) == expected


def test_the_other_options_of_an_address_stay_without_its_password():
    where = "postgresql://u@h/d?password=z&sslmode=require"
    assert without_password(where) == "postgresql://u@h/d?sslmode=require"


@pytest.mark.parametrize(("where", "host"), [("grpc://h:7", "h"), ("grpc://[::1]:7", "[::1]")])
def test_a_proxy_has_a_host_and_a_port(where, host):
    check_address(where)
    assert split_grpc(where) == (host, 7)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("kind", ["postgresql", "grpc"])
def test_no_server_is_one_line_with_host_and_remedy(kind, create, tmp_path, monkeypatch):
    monkeypatch.setattr(storage_module, "CONNECT_S", 1)
    pytest.importorskip({"postgresql": "psycopg", "grpc": "grpc"}[kind])
    port = free_port()
    where = f"grpc://127.0.0.1:{port}"
    if kind == "postgresql":
        where = f"postgresql://u:secret@127.0.0.1:{port}/d"
    with pytest.raises(ValueError, match=r"^sweep\.storage: ") as caught:
        open_storage(where, tmp_path / "study.journal", create=create)
    said = str(caught.value)
    assert f"127.0.0.1:{port}" in said
    assert "secret" not in said
    assert "\n" not in said
    assert ("run_grpc_proxy_server" if kind == "grpc" else "sweep.storage: journal") in said


@ON_A_SERVER
def test_a_wrong_password_is_one_line(postgres, tmp_path):
    wrong = postgres.database().replace(QUOTED, "hidden")
    with pytest.raises(ValueError, match="password authentication failed") as caught:
        open_storage(wrong, tmp_path / "study.journal", create=True)
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)


@ON_A_SERVER
def test_a_database_without_an_encoding_works(postgres, tmp_path):
    where = postgres.database("SQL_ASCII")
    for create in (True, False):
        storage = open_storage(where, tmp_path / "study.journal", create=create)
    study = optuna.create_study(study_name=STUDY, storage=storage)
    study.ask().set_user_attr("host", "h\u00f6st")
    assert study.trials[0].user_attrs == {"host": "h\u00f6st"}


@ON_A_SERVER
def test_a_database_of_another_program_is_one_line(postgres, tmp_path):
    import psycopg

    where = postgres.database()
    with psycopg.connect(where) as connection:
        connection.execute("CREATE TABLE studies (a int)")
        connection.execute("CREATE TABLE alembic_version (version_num varchar(32))")
        connection.execute("INSERT INTO alembic_version VALUES ('abc')")
    for create in (False, True):
        with pytest.raises(ValueError, match=r"^sweep\.storage: .* cannot be used") as caught:
            open_storage(where, tmp_path / "study.journal", create=create)
        assert "\n" not in str(caught.value)


def test_another_server_is_no_proxy(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_module, "CONNECT_S", 1)
    grpc = pytest.importorskip("grpc")
    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(ValueError, match="is no proxy of a sweep"):
            open_storage(f"grpc://127.0.0.1:{port}", tmp_path / "study.journal", create=False)
    finally:
        server.stop(None)


@pytest.mark.parametrize(
    ("where", "module", "pip"),
    [
        ("postgresql://u:secret@h/d", "psycopg", "pip install 'psycopg[binary]'"),
        ("postgresql://u:secret@h/d", "sqlalchemy", "pip install 'sqlalchemy'"),
        ("grpc://h:1", "grpc", "pip install 'grpcio'"),
        ("grpc://h:1", "google.protobuf", "pip install 'protobuf'"),
    ],
)
def test_a_missing_package_is_named_with_its_pip_line(where, module, pip, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"^sweep\.storage: ") as caught:
        open_storage(where, tmp_path / "study.journal", create=True)
    assert pip in str(caught.value)
    assert "secret" not in str(caught.value)


def until_it_works(call: Callable[[], Any], failed: threading.Event) -> Any:
    """What a worker does: it tries again where the storage is out of reach for now."""
    last = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except Exception as error:
            failed.set()
            if not is_transient(error) or time.monotonic() > last:
                raise
            time.sleep(0.05)


@ON_A_SERVER
def test_a_worker_outlives_a_restart_of_the_database(postgres, tmp_path):
    where = postgres.database()
    journal = tmp_path / "run" / "sweep" / "study.journal"
    optuna.create_study(study_name=STUDY, storage=open_storage(where, journal, create=True))
    survive(where, journal, postgres.stop, postgres.start)


def survive(where: str, journal: Path, stop: Callable[[], Any], start: Callable[[], Any]) -> None:
    """Go through a trial while what keeps the study is away for part of it."""
    study = optuna.load_study(
        study_name=STUDY, storage=open_storage(where, journal, create=False, say=pytest.fail)
    )
    study.tell(study.ask(), 1.0)
    trial = study.ask()
    trial.report(5.0, step=1)
    for step in (2, 3):
        stop()
        failed, done = threading.Event(), threading.Event()

        def report(step: int = step, failed: Any = failed, done: Any = done) -> None:
            until_it_works(lambda: trial.report(5.0 + step, step=step), failed)
            done.set()

        worker = threading.Thread(target=report)
        worker.start()
        assert failed.wait(PATIENCE_S)
        assert not done.is_set()
        start()
        worker.join(PATIENCE_S)
        assert done.is_set()
    until_it_works(lambda: study.tell(trial, 2.0), threading.Event())
    again = optuna.load_study(
        study_name=STUDY, storage=open_storage(where, journal, create=False, say=pytest.fail)
    )
    assert [each.value for each in again.trials] == [1.0, 2.0]
    assert again.trials[1].intermediate_values == {1: 5.0, 2: 7.0, 3: 8.0}


@pytest.mark.parametrize(
    "error", [ValueError("no"), OSError(28, "full"), KeyError("x"), RuntimeError("lock")]
)
def test_other_errors_do_not_pass(error):
    assert not is_transient(error)


@ON_A_SERVER
def test_a_mistake_in_a_database_does_not_pass(postgres, tmp_path):
    where = postgres.database()
    storage = open_storage(where, tmp_path / "j", create=True)
    study = optuna.create_study(study_name=STUDY, storage=storage)
    with pytest.raises(optuna.exceptions.StorageInternalError) as caught:
        study.set_user_attr("long" * 1000, 1)
    assert not is_transient(caught.value)


@ON_A_SERVER
def test_an_idle_worker_does_not_notice_a_restart(postgres, tmp_path):
    storage = open_storage(postgres.database(), tmp_path / "j", create=True)
    study = optuna.create_study(study_name=STUDY, storage=storage)
    postgres.stop()
    postgres.start()
    study.set_user_attr("a", 1)
    assert study.user_attrs == {"a": 1}
