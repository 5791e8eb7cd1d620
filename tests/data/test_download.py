"""Downloads end with the checked file or with one message; zip members are bounded streams."""

import hashlib
import random
import re
import socket
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data.corpora import downloaded as download
from data.corpora.downloaded import Remote, fetch, open_member
from utils.archives import ArchiveError

from .server import Handler, Server

CONTENT = random.Random(0).randbytes(300_000)
WRONG = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


@pytest.fixture
def server(server: Server) -> Server:
    server.answers["/good"] = lambda handler: handler.give(200, CONTENT)
    return server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "downloads"


def remote(server: Server, *paths: str) -> Remote:
    return Remote(
        "file.zip",
        tuple(server.address(path) for path in paths),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        limit=len(CONTENT),
        size=len(CONTENT),
    )


def refusal(server: Server, folder: Path, *paths: str, **changes: Any) -> str:
    """What is said where no address gives the file."""
    with pytest.raises(ValueError, match="could not be downloaded") as caught:
        fetch(replace(remote(server, *paths), **changes), folder)
    return str(caught.value)


def assert_whole(path: Path) -> None:
    """The right content, and nothing beside it."""
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


def test_a_file_is_fetched_once_and_then_used(server: Server, folder: Path) -> None:
    told: list[str] = []
    assert_whole(fetch(remote(server, "/good"), folder, progress=told.append))
    assert_whole(fetch(remote(server, "/good"), folder))
    assert server.asked == ["/good"]
    assert told[0] == f"file.zip: from 127.0.0.1:{server.server_port}, at most 0.3 MB"
    assert 1 <= len(told) <= 12
    assert not any("\n" in line for line in told)


def test_a_body_that_breaks_off_leaves_nothing_and_the_next_address_is_tried(
    server: Server, folder: Path
) -> None:
    server.answers["/broken"] = lambda handler: handler.give(200, CONTENT[:7000], len(CONTENT))
    assert "what it gave has 7,000 bytes instead of 300,000" in refusal(server, folder, "/broken")
    assert list(folder.iterdir()) == []
    assert_whole(fetch(remote(server, "/broken", "/good"), folder))


UNKNOWN = {"size": None, "limit": 1000}


@pytest.mark.parametrize(
    ("body", "length", "known", "message"),
    [
        (b"<html>Log in", None, {}, "what it gave has 12 bytes instead of 300,000"),
        (WRONG, -1, {}, "what it gave has SHA-256"),
        (CONTENT + b"!", None, {}, "sent more than 300,000 bytes"),
        (CONTENT, None, UNKNOWN, "sent more than 1,000 bytes"),
    ],
)
def test_wrong_content_is_refused_and_removed_and_the_next_address_tried(
    server: Server, folder: Path, body: bytes, length: int | None, known: Any, message: str
) -> None:
    server.answers["/wrong"] = lambda handler: handler.give(200, body, length)
    assert message in refusal(server, folder, "/wrong", **known)
    assert not list(folder.iterdir())
    if not known:
        assert_whole(fetch(remote(server, "/wrong", "/good"), folder))
        assert server.asked[1:] == ["/wrong", "/good"]


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_an_error_page_leads_to_the_next_address(server: Server, folder: Path, status: int) -> None:
    server.answers["/bad"] = lambda handler: handler.give(status, b"no")
    told: list[str] = []
    assert_whole(fetch(remote(server, "/bad", "/good"), folder, progress=told.append))
    assert server.asked == ["/bad", "/good"]
    assert f"HTTP {status}" in told[0]


@pytest.mark.parametrize("target", ["/loop", "file:///etc/passwd", "data:,x"])
def test_redirects_end_and_lead_to_the_web_only(server: Server, folder: Path, target: str) -> None:
    server.answers["/loop"] = lambda handler: handler.give(302, b"", Location=target)
    message = refusal(server, folder, "/loop")
    assert re.search(r"127\S+: HTTP 302 ", message)
    assert len(server.asked) < 20
    assert not list(folder.iterdir())


def test_a_silent_server_is_given_up(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT_S", 0.3)

    def silent(handler: Handler) -> None:
        handler.server.over.wait(5)

    def silent_later(handler: Handler) -> None:
        handler.give(200, CONTENT[:5000], len(CONTENT))
        handler.wfile.flush()
        handler.server.over.wait(5)

    server.answers |= {"/silent": silent, "/later": silent_later}
    message = refusal(server, folder, "/silent", "/later")
    assert re.search(r"timed out(.|\n)*after 5,000 bytes: timed out", message)


def test_without_a_network_the_message_says_what_to_put_where(folder: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    addresses = (f"http://127.0.0.1:{port}/a/file.zip", "http://no-such-host.invalid/file.zip")
    lost = Remote("file.zip", addresses, sha256="ab" * 32, limit=9)
    with pytest.raises(ValueError, match=r"file\.zip is not here and could not be") as caught:
        fetch(lost, folder)
    message = str(caught.value)
    assert f"127.0.0.1:{port}: Connection refused" in message
    assert "no-such-host.invalid: " in message
    for part in (*addresses, str(folder / "file.zip"), "ab" * 32):
        assert part in message
    assert not list(folder.iterdir())


def test_a_file_put_there_by_hand_is_checked_and_kept(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    by_hand = folder / "file.zip"
    by_hand.write_bytes(CONTENT)
    assert_whole(fetch(remote(server), folder))
    for content, message in ((WRONG, "has SHA-256"), (CONTENT[:9], "has 9 bytes instead of")):
        by_hand.write_bytes(content)
        with pytest.raises(ValueError, match=rf"file\.zip: {message} .*delete it and run again"):
            fetch(remote(server, "/good"), folder)
        assert by_hand.read_bytes() == content
    assert not server.asked


TEXT = b"the member's own text\n" * 500
UNSAFE = ["../evil", "a/../../evil", "/etc/evil", "\\evil", "a\\..\\evil", "C:\\evil", "c:evil"]
UNSAFE.append("box/a\0b")  # zipfile would cut it


def write(path: Path, *extra: str, content: bytes = TEXT) -> Path:
    """A zip file with extra entries before the member."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name in extra:
            info = zipfile.ZipInfo("placeholder")
            info.filename = info.orig_filename = name
            opened.writestr(info, b"evil")
        opened.writestr("box/text", content)
    return path


def read(archive: Path, member: str = "box/text") -> bytes:
    with open_member(archive, member) as stream:
        return stream.read()


def test_a_member_comes_out_exactly(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", "box/other")
    assert read(archive) == TEXT
    with open_member(archive, "box/text") as stream:
        assert b"".join(stream) == TEXT
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_unsafe_names_are_refused(tmp_path: Path, unsafe: str) -> None:
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    archive = write(folder / "a.zip", unsafe)
    with pytest.raises(ArchiveError, match="holds the unsafe name "):
        read(archive)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


def test_a_zip_that_says_it_is_large_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write(tmp_path / "a.zip", content=bytes(1 << 20))
    monkeypatch.setattr(download, "_LARGEST_ARCHIVE", 1000)
    with pytest.raises(ArchiveError, match="unpacks to 1,048,576 bytes, more than 1,000"):
        read(archive)
