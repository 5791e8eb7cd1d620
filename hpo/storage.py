"""The storage of a sweep's Optuna study: a journal file, a database, or a gRPC proxy."""

import importlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, GrpcStorageProxy, JournalStorage, RDBStorage, get_storage

from hpo.config import JOURNAL, check_address, shown, split_grpc
from hpo.journal import Journal, Say, check
from hpo.retry import is_transient

if TYPE_CHECKING:
    from sqlalchemy import URL

CONNECT_S = 10
# The driver of a URL that names none: its module and what pip calls it.
DRIVERS = {"postgresql": ("psycopg", "psycopg[binary]")}


def open_storage(where: str, journal: Path, *, create: bool, say: Say = print) -> BaseStorage:
    """Open the storage that sweep.storage names.

    With `create` a missing file or missing tables are made, by one process at a time: Optuna makes
    its tables without a lock. `say` is given each line that the user should see.

    Raises:
        ValueError: a malformed URL, a missing package, a server out of reach, or nothing there yet.
        OSError: the journal cannot be read or made.
    """
    check_address(where)
    if where == JOURNAL:
        return _open_journal(journal, create, say)
    if where.startswith("grpc://"):
        return _open_proxy(where)
    return _open_database(where, create)


def _open_journal(journal: Path, create: bool, say: Say) -> BaseStorage:
    path = journal.resolve()
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    elif not path.is_file():
        raise ValueError(f"{journal}: no sweep there yet; start it with sweep.py")
    check(path, say)
    backend = Journal(path, say)
    try:
        return JournalStorage(backend)
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        # What Optuna raises for records of the right form that do not fit together.
        said = f"{type(error).__name__}: {_one_line(str(error))}"
        raise ValueError(
            f"{journal}:{backend.line}: Optuna cannot replay it ({said}); nothing was changed. "
            "Put back a copy of the file"
        ) from None


def _open_proxy(where: str) -> BaseStorage:
    grpc = check_grpc()
    host, port = split_grpc(where)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        storage = GrpcStorageProxy(host=host, port=port)
    remedy = f"start optuna.storages.run_grpc_proxy_server there, on port {port}"
    try:
        storage.wait_server_ready(timeout=CONNECT_S)
        storage.get_all_studies()
    except ConnectionError:
        storage.close()
        raise ValueError(f"sweep.storage: no server answers at {where}; {remedy}") from None
    except grpc.RpcError as error:
        storage.close()
        said = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.Call) else error
        raise ValueError(
            f"sweep.storage: {where} is no proxy of a sweep ({_one_line(str(said))}); {remedy}"
        ) from None
    return storage


def check_grpc() -> Any:
    """The module grpc; ValueError where a package that it takes to speak gRPC is missing."""
    _package("google.protobuf", "protobuf", "grpc://")
    return _package("grpc", "grpcio", "grpc://")


def _open_database(where: str, create: bool) -> BaseStorage:
    sqlalchemy = _package("sqlalchemy", "sqlalchemy", where)
    url = _with_driver(where)
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_S}
    if url.get_backend_name() == "postgresql":
        # A database without an encoding of its own gives bytes otherwise.
        arguments["client_encoding"] = "utf8"
    # A connection for each call: a worker calls seldom, and none may go stale while it trains.
    options = {"poolclass": sqlalchemy.NullPool, "connect_args": arguments}
    try:
        if not create and not _has_tables(url, options):
            raise ValueError(f"sweep.storage: {shown(where)}: no sweep there yet; start sweep.py")
        # Optuna fills in {...}, which may stand in a name.
        text = url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
        return get_storage(RDBStorage(text, dict(options), skip_table_creation=not create))
    except ImportError as error:
        raise ValueError(
            f"sweep.storage: {shown(where)}: its driver is missing ({_one_line(str(error))})"
        ) from None
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        raise ValueError(_why_not(error, where, url)) from None


def _with_driver(where: str) -> "URL":
    """The URL with the driver that we know where it names none."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(where)
    except (ArgumentError, ValueError):
        raise ValueError(f"sweep.storage: {shown(where)!r} is no URL of a database") from None
    known = DRIVERS.get(url.drivername)
    if known is not None:
        url = url.set(drivername=f"{url.drivername}+{known[0]}")
    for module, name in DRIVERS.values():
        if url.drivername.endswith(f"+{module}"):
            _package(module, name, where)
    return url


def _has_tables(url: "URL", options: dict[str, Any]) -> bool:
    """Whether Optuna's tables are there, the last thing that it writes when it makes them too."""
    from sqlalchemy import create_engine, inspect, text

    with create_engine(url, **options).connect() as connection:
        has_table = inspect(connection).has_table
        if not has_table("studies") or not has_table("alembic_version"):
            return False
        return bool(connection.execute(text("SELECT count(*) FROM alembic_version")).scalar_one())


def _why_not(error: Exception, where: str, url: "URL") -> str:
    """One line about a database that could not be used, without its password."""
    cause = error.__cause__ or error
    said = _one_line(str(getattr(cause, "orig", None) or cause))
    if url.password:
        said = said.replace(str(url.password), "***")
    if is_transient(error):
        remedy = "see that the server runs and takes this user, or use sweep.storage: journal"
        return f"sweep.storage: cannot reach {shown(where)} ({said}); {remedy}"
    return f"sweep.storage: {shown(where)} cannot be used ({said})"


def _package(module: str, name: str, where: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        python = f"`pip install '{name}'` into the environment that runs this"
        raise ValueError(f"sweep.storage: {shown(where)} needs {name}: {python}") from None


def _one_line(text: str) -> str:
    return " ".join(text.split())
