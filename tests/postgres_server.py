"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port of 127.0.0.1."""

import gc
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "se/cr@t"
QUOTED = "se%2Fcr%40t"


class PostgresServer:
    """A server whose only user is `parnas`."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries = binaries
        self._folder = folder
        self._as: dict[str, Any] = {}
        self._names = (f"test_{number}" for number in itertools.count())
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        password = folder / "password"
        password.write_text(PASSWORD)
        if os.geteuid() == 0:  # as which PostgreSQL refuses to run
            account = pwd.getpwnam(str(_unprivileged()))
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
            for path in (folder, password):
                os.chown(path, account.pw_uid, account.pw_gid)
        settings = ("--username=parnas", "--no-locale", "--encoding=UTF8", "--no-sync",
                    "--auth=scram-sha-256", f"--pwfile={password}")  # fmt: skip
        self._run("initdb", f"--pgdata={folder}/data", *settings)

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "fsync": "off",
            "unix_socket_directories": self._folder, "max_connections": 30,
            "shared_buffers": "16MB",
        }  # fmt: skip
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._control("-w", "-l", f"{self._folder}/log", "-o", options, "start")

    def stop(self) -> None:
        """Stop it at once: nothing of it is used again."""
        self._control("-m", "immediate", "stop")

    def database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        name = next(self._names)
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="parnas", password=PASSWORD, dbname="postgres",
            autocommit=True,
        ) as connection:  # fmt: skip
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://parnas:{QUOTED}@127.0.0.1:{self.port}/{name}"

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", f"{self._folder}/data", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        with (self._folder / "said").open("w+b") as said:
            done = subprocess.run(
                [self._binaries / program, *arguments], stdin=subprocess.DEVNULL, stdout=said,
                stderr=said, cwd=self._folder, env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
                **self._as,
            )  # fmt: skip
        assert done.returncode == 0, (self._folder / "said").read_text(errors="replace")


@pytest.fixture(scope="session")
def postgres_session() -> Iterator[PostgresServer]:
    """One server for all tests; use `postgres`."""
    pytest.importorskip("psycopg")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server here: neither in PATH nor in /usr/lib/postgresql")
    if os.geteuid() == 0 and _unprivileged() is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")
    # Not below pytest's folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp(prefix="parnas-postgres-"))
    try:
        server = PostgresServer(binaries, folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgres(postgres_session: PostgresServer) -> Iterator[PostgresServer]:
    """A running server."""
    yield postgres_session
    # Optuna's storages close no connection; what says so is to be heard here and not in any test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def _binaries() -> Path | None:
    """The folder of the newest server."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    return max(installed, key=lambda folder: float(folder.parent.name), default=None)


def _unprivileged() -> str | None:
    names = {account.pw_name for account in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)
