"""The addresses that sweep.storage takes, and how they are shown without their passwords."""

import re
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from utils.text import masked, without_passwords

JOURNAL = "journal"
_KINDS = (
    "journal, postgresql://user:password@host:5432/database, "
    "mysql://user:password@host:3306/database or grpc://host:13000"
)


def shown(where: str) -> str:
    """An address as it may stand on a screen: its password is ***."""
    return _changed(where, masked)


def without_password(where: str) -> str:
    """An address as it may stand in a file; it works where the password comes from elsewhere."""
    return _changed(where, without_passwords)


def _changed(where: str, change: Callable[[str], str]) -> str:
    """Also of what lacks the kind before ://, or writes it wrong."""
    kind, slashes, rest = where.partition("//")
    if slashes and "://" not in where:
        return f"{kind}//" + _changed(rest, change)
    start = "" if "://" in where else "://"
    return change(f"{start}{where}").removeprefix(start)


def check_address(where: str) -> None:
    """Refuse what is no address of a storage; nothing is opened or imported for it.

    Args:
        where: `journal` or a URL.

    Raises:
        ValueError: it is of no known kind or malformed; the message begins with the key.
    """
    if where == JOURNAL:
        return
    kind, named, _ = where.partition("://")
    if not named or kind.split("+")[0] not in {"postgresql", "mysql", "grpc"}:
        raise _refused(where, _no_kind(kind))
    try:
        parts = urlsplit(where)
        port = parts.port
    except ValueError:
        raise _refused(where, "its host or its port is malformed") from None
    if re.search(r"\s", where):
        raise _refused(where, "write a space as %20")
    if parts.netloc.count("@") > 1 or "@" in parts.path:
        raise _refused(where, "write @ and / in a user name or a password as %40 and %2F")
    if kind == "grpc":
        if not parts.hostname or not port or where != f"grpc://{parts.netloc}" or "@" in where:
            raise _refused(where, "it must be grpc://HOST:PORT and no more")
    elif not parts.path.strip("/"):
        raise _refused(where, "the name of a database is missing at the end")


def split_grpc(where: str) -> tuple[str, int]:
    """Host, in brackets where it is an IPv6 address, and port of a checked grpc:// address."""
    parts: SplitResult = urlsplit(where)
    assert parts.hostname is not None
    assert parts.port is not None
    host = parts.hostname
    return f"[{host}]" if ":" in host else host, parts.port


def _no_kind(kind: str) -> str:
    if kind.split("+")[0] == "postgres":
        return "write postgresql://"
    if kind.split("+")[0] == "sqlite":
        return "SQLite loses writes of several processes; use journal, a file as well"
    return f"expected {_KINDS}"


def _refused(where: str, why: str) -> ValueError:
    return ValueError(f"sweep.storage: {shown(where)!r}: {why}")
