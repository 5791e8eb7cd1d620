"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port of 127.0.0.1."""

import gc
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "se/cr@t"
QUOTED = "se%2Fcr%40t"
START_S = 60


class PostgresServer:
    """A server that can be stopped and started again; its only user is `parnas`."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._as: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._names = (f"test_{number}" for number in itertools.count())
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._make()

    def _make(self) -> None:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if _is_root():  # as which PostgreSQL refuses to run
            account = pwd.getpwnam(str(_unprivileged()))
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            for path in (self._folder, password):
                os.chown(path, account.pw_uid, account.pw_gid)
        settings = [
            "--username=parnas",
            "--no-locale",
            "--encoding=UTF8",
            "--auth=scram-sha-256",
            f"--pwfile={password}",
        ]
        self._run("initdb", f"--pgdata={self._folder}/data", "--no-sync", *settings)

    def ensure(self) -> None:
        """Start it where it does not run."""
        if self._process is None:
            self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        assert self._process is None
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._folder,
            "fsync": "off",
            "max_connections": 30,
            "shared_buffers": "16MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._folder / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"LC_ALL": "C"},
                **self._as,
            )
        self._wait()

    def _wait(self) -> None:
        import psycopg

        end = time.monotonic() + START_S
        while True:
            try:
                self._connect().close()
                return
            except psycopg.OperationalError:
                assert self._process is not None
                alive = self._process.poll() is None
                if not alive or time.monotonic() > end:
                    pytest.fail((self._folder / "log").read_text(errors="replace"))
                time.sleep(0.05)

    def stop(self, *, for_good: bool = False) -> None:
        """Stop it, as in an administrator's restart; for good it need not tidy up before."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if for_good else signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
        self._process = None

    def database(self, encoding: str = "UTF8") -> str:
        """The URL of a new, empty database."""
        name = next(self._names)
        with self._connect() as connection:
            connection.autocommit = True
            connection.execute(
                f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0".encode()
            )
        return f"postgresql://parnas:{QUOTED}@127.0.0.1:{self.port}/{name}"

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(
            host="127.0.0.1", port=self.port, user="parnas", password=PASSWORD, dbname="postgres"
        )

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self._folder,
            env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
            **self._as,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")


@pytest.fixture(scope="session")
def postgres_session() -> Iterator[PostgresServer]:
    """One server for all tests; use `postgres`."""
    pytest.importorskip("psycopg")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server here: neither in PATH nor in /usr/lib/postgresql")
    if _is_root() and _unprivileged() is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")
    # Not below pytest's folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp(prefix="parnas-postgres-"))
    try:
        server = PostgresServer(binaries, folder)
        try:
            server.start()
            yield server
        finally:
            server.stop(for_good=True)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgres(postgres_session: PostgresServer) -> Iterator[PostgresServer]:
    """A running server, also where a test before stopped it."""
    postgres_session.ensure()
    yield postgres_session
    # Optuna's storages close no connection; what says so is to be heard here and not in any test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _binaries() -> Path | None:
    """The folder of the newest server."""
    found = shutil.which("initdb")
    if found is not None and (Path(found).parent / "postgres").exists():
        return Path(found).parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max(
        (path.parent for path in installed if (path.parent / "postgres").exists()),
        key=lambda folder: float(folder.parent.name),
        default=None,
    )


def _is_root() -> bool:
    return os.geteuid() == 0


def _unprivileged() -> str | None:
    names = {account.pw_name for account in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)
