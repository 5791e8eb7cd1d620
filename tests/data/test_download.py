"""Downloads end with the checked file or with one message; zip members are bounded streams."""

import hashlib
import io
import random
import re
import socket
import stat
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data import download
from data.download import Remote, fetch, open_member
from utils.archives import ArchiveError

from .server import Handler, Server

CONTENT = random.Random(0).randbytes(300_000)
WRONG = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


@pytest.fixture
def server(server: Server) -> Server:
    server.answers["/good"] = lambda handler: handler.ranged(CONTENT)
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


def leave_part(folder: Path, content: bytes) -> Path:
    folder.mkdir(parents=True)
    part = folder / "file.zip.part"
    part.write_bytes(content)
    return part


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
    assert server.asked == [("/good", None)]
    assert told[0] == f"file.zip: from 127.0.0.1:{server.server_port}, 0.0 of 0.3 MB"
    assert 2 <= len(told) <= 12
    assert not any("\n" in line for line in told)


@pytest.mark.parametrize("size", [len(CONTENT), None])
@pytest.mark.parametrize("have", [1000, len(CONTENT)])
def test_a_part_is_resumed_and_a_whole_one_needs_no_body(
    server: Server, folder: Path, have: int, size: int | None
) -> None:
    leave_part(folder, CONTENT[:have])
    assert_whole(fetch(replace(remote(server, "/good"), size=size), folder))
    assert server.asked == [("/good", f"bytes={have}-")]


def test_a_server_without_ranges_sends_it_all_again(server: Server, folder: Path) -> None:
    leave_part(folder, b"x" * 1000)
    server.answers["/all"] = lambda handler: handler.give(200, CONTENT)
    assert_whole(fetch(remote(server, "/all"), folder))
    assert server.asked == [("/all", "bytes=1000-")]


def test_a_part_that_another_process_removed_is_begun_anew(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = leave_part(folder, CONTENT[:1000])
    lock, calls = download._lock, []

    def late(file: io.BufferedRandom, *rest: Any) -> None:
        lock(file, *rest)
        calls.append(file)
        if len(calls) == 1:
            part.unlink()

    exists = Path.exists
    monkeypatch.setattr(download, "_lock", late)
    # What was just there is not.
    monkeypatch.setattr(Path, "exists", lambda path: path == part or exists(path))
    assert_whole(fetch(remote(server, "/good"), folder))
    assert len(calls) == 2


@pytest.mark.parametrize("old", [b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5)])
def test_a_wrong_part_is_fetched_again_from_zero(server: Server, folder: Path, old: bytes) -> None:
    leave_part(folder, old)
    assert_whole(fetch(remote(server, "/good"), folder))
    assert server.asked == [("/good", f"bytes={len(old)}-"), ("/good", None)]


def test_a_truncated_body_keeps_the_part_and_the_next_address_takes_over(
    server: Server, folder: Path
) -> None:
    server.answers["/broken"] = lambda handler: handler.give(200, CONTENT[:7000], len(CONTENT))
    assert "stopped after 7,000 of 300,000 bytes" in refusal(server, folder, "/broken")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "file.zip.part": CONTENT[:7000]
    }
    (folder / "file.zip.part").unlink()
    assert_whole(fetch(remote(server, "/broken", "/good"), folder))
    assert server.asked[1:] == [("/broken", None), ("/good", "bytes=7000-")]


def test_a_broken_chunk_is_one_line(server: Server, folder: Path) -> None:
    server.answers["/chunks"] = lambda handler: handler.give(
        200, b"ff\r\nabc", None, Transfer_Encoding="chunked"
    )
    assert re.search(r":\n  127\S+: broke off after 3 b", refusal(server, folder, "/chunks"))


UNKNOWN = {"size": None, "limit": 1000}


@pytest.mark.parametrize(
    ("body", "length", "known", "message"),
    [
        (b"<html>Log in", None, {}, "what it gave has 12 bytes instead of 300,000"),
        (WRONG, -1, {}, "what it gave has SHA-256"),
        (CONTENT + b"!", -1, {}, "offers 300,001 bytes instead of 300,000"),
        (CONTENT + b"!", None, {}, "sent more than 300,000 bytes"),
        (CONTENT, -1, UNKNOWN, "offers 300,000 bytes instead of at most 1,000"),
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
        assert server.asked[1:] == [("/wrong", None), ("/good", None)]


@pytest.mark.parametrize("said", ["bytes 0-299999/300000", "bytes 1001-299999/300000", "nonsense"])
def test_a_range_that_was_not_asked_for_is_refused(server: Server, folder: Path, said: str) -> None:
    part = leave_part(folder, CONTENT[:1000])
    server.answers["/odd"] = lambda handler: handler.give(206, CONTENT, Content_Range=said)
    assert "HTTP 206 with Content-Range" in refusal(server, folder, "/odd")
    assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_an_error_page_leads_to_the_next_address(server: Server, folder: Path, status: int) -> None:
    server.answers["/bad"] = lambda handler: handler.give(status, b"no")
    told: list[str] = []
    assert_whole(fetch(remote(server, "/bad", "/good"), folder, progress=told.append))
    assert [path for path, _ in server.asked] == ["/bad", "/good"]
    assert f"HTTP {status}" in told[0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_and_keeps_the_range(
    server: Server, folder: Path, status: int
) -> None:
    leave_part(folder, CONTENT[:10])
    server.answers["/old"] = lambda handler: handler.give(status, b"", Location="/good")
    assert_whole(fetch(remote(server, "/old"), folder))
    assert server.asked == [("/old", "bytes=10-"), ("/good", "bytes=10-")]


@pytest.mark.parametrize("target", ["/loop", "file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_redirects_end_and_lead_to_the_web_only(server: Server, folder: Path, target: str) -> None:
    server.answers["/loop"] = lambda handler: handler.give(302, b"", Location=target)
    message = refusal(server, folder, "/loop")
    assert re.search(r"127\S+: (HTTP 302 .*|unknown url type)", message)
    assert len(server.asked) < 20
    assert not list(folder.iterdir())


def test_an_address_leads_to_the_web_only(server: Server, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    addresses = ((tmp_path / "file").as_uri(),)
    assert "is no http or https address" in refusal(server, folder, addresses=addresses)


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
    assert re.search(r"no answer in time(.|\n)*after 5,000 bytes: no answer in", message)
    assert (folder / "file.zip.part").read_bytes() == CONTENT[:5000]


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
    by_hand.unlink()
    by_hand.mkdir()
    with pytest.raises(ValueError, match="is not a file"):
        fetch(remote(server, "/good"), folder)
    assert not server.asked


def test_given_addresses_replace_the_published_ones(server: Server, folder: Path) -> None:
    published = remote(server, "/published")
    assert_whole(fetch(published, folder, addresses=[server.address("/good")]))
    assert [path for path, _ in server.asked] == ["/good"]


def test_a_folder_that_cannot_be_written_is_named(
    server: Server, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(OSError, match="downloads"):
        fetch(remote(server, "/good"), folder)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_no_fault_of_the_address(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "file.zip.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"file\.zip\.part") as caught:
        fetch(remote(server, "/good", "/good"), folder)
    assert caught.value.errno is not None
    assert len(server.asked) <= 1


@pytest.mark.parametrize("content", [CONTENT, WRONG])
def test_two_at_once_download_it_once_unless_the_first_one_fails(
    server: Server, folder: Path, content: bytes
) -> None:
    started, go = threading.Event(), threading.Event()

    def slow(handler: Handler) -> None:
        started.set()
        go.wait(5)
        handler.ranged(content)

    def fetch_first() -> None:
        try:
            fetch(remote(server, "/slow"), folder)
        except ValueError as error:
            failures.append(str(error))

    def tell(line: str) -> None:
        told.append(line)
        go.set()

    server.answers["/slow"] = slow
    told: list[str] = []
    failures: list[str] = []
    first = threading.Thread(target=fetch_first, daemon=True)
    first.start()
    assert started.wait(5)
    assert_whole(fetch(remote(server, "/good"), folder, progress=tell))
    first.join(5)
    assert told[0] == "file.zip: another process is downloading it; waiting"
    assert len(failures) == (content == WRONG)
    assert server.asked == [("/slow", None), ("/good", None)][: 1 + len(failures)]


_FETCH = """
import sys
from pathlib import Path
from data.download import Remote, fetch
address, folder, sha256, size = sys.argv[1:]
fetch(Remote("file.zip", (address,), sha256, int(size), int(size)), Path(folder))
"""


def test_a_killed_download_is_resumed(server: Server, folder: Path) -> None:
    sent = threading.Event()

    def stalls(handler: Handler) -> None:
        handler.give(200, CONTENT[:200_000], len(CONTENT))
        handler.wfile.flush()
        sent.set()
        handler.server.over.wait(20)

    server.answers["/stalls"] = stalls
    wanted = remote(server, "/stalls")
    arguments = (wanted.addresses[0], str(folder), wanted.sha256, str(wanted.size))
    running = subprocess.Popen(
        [sys.executable, "-c", _FETCH, *arguments], cwd=Path(__file__).parents[2]
    )
    try:
        assert sent.wait(20)
        part = folder / "file.zip.part"
        deadline = time.monotonic() + 20
        while part.stat().st_size < 100_000 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        running.kill()
        running.wait(20)
    have = part.stat().st_size
    assert 100_000 <= have <= 200_000
    assert part.read_bytes() == CONTENT[:have]
    assert_whole(fetch(remote(server, "/good"), folder))
    assert server.asked[-1] == ("/good", f"bytes={have}-")


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


def read(archive: Path, member: str = "box/text", limit: int = 1 << 20) -> bytes:
    with open_member(archive, member, limit=limit) as stream:
        return stream.read()


def test_a_member_comes_out_exactly(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", "box/other")
    assert read(archive, limit=len(TEXT)) == TEXT
    with open_member(archive, "box/text", limit=1 << 20) as stream:
        assert b"".join(stream) == TEXT
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.parametrize("unsafe", UNSAFE)
def test_unsafe_names_are_refused(tmp_path: Path, unsafe: str) -> None:
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    archive = write(folder / "a.zip", unsafe)
    with pytest.raises(ArchiveError, match=r"holds the unsafe name .*; delete it"):
        read(archive)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


@pytest.mark.parametrize("name", ["a..b", "..a/b", "a/...", "box/x:y"])
def test_harmless_dots_are_allowed(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path / "a.zip", name)) == TEXT


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
@pytest.mark.parametrize("member", ["box/text", "box/other"])
def test_links_and_devices_are_refused(tmp_path: Path, mode: int, member: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        info = zipfile.ZipInfo(member)
        info.external_attr = (mode | 0o777) << 16
        opened.writestr(info, "/etc/passwd")
    with pytest.raises(ArchiveError, match="a link or a device"):
        read(tmp_path / "a.zip")


def test_a_zip_that_says_it_is_large_is_refused_unread(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", content=bytes(1 << 20))
    with pytest.raises(ArchiveError, match="says it holds 1,048,576 bytes, more than the 1,000"):
        read(archive, limit=1000)


def test_a_zip_that_says_it_is_small_gives_no_more(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", content=bytes(1 << 20))
    raw = archive.read_bytes()
    assert raw.count((1 << 20).to_bytes(4, "little")) == 2
    archive.write_bytes(raw.replace((1 << 20).to_bytes(4, "little"), (900).to_bytes(4, "little")))
    given = []
    with (
        pytest.raises(ArchiveError, match="is damaged"),
        open_member(archive, "box/text", limit=1000) as stream,
    ):
        given += iter(lambda: stream.read(100), b"")
    assert sum(map(len, given)) <= 900


def test_a_missing_member_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="holds no members called box/texts"):
        read(write(tmp_path / "a.zip"), "box/texts")


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        opened.writestr("box/text", "one")
        with pytest.warns(UserWarning, match="Duplicate"):
            opened.writestr("box/text", "two")
    with pytest.raises(ArchiveError, match="holds 2 members called box/text"):
        read(tmp_path / "a.zip")


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip")
    raw = bytearray(archive.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(raw)
    with pytest.raises(ArchiveError, match="box/text is encrypted"):
        read(archive)


@pytest.mark.parametrize("how", ["cut", "flipped", "nonsense"])
def test_damage_is_one_line_that_names_the_file(tmp_path: Path, how: str) -> None:
    archive = write(tmp_path / "a.zip")
    raw = bytearray(archive.read_bytes())
    if how == "cut":
        del raw[len(raw) // 2 :]
    elif how == "flipped":
        raw[60] ^= 0xFF
    archive.write_bytes(b"nonsense" if how == "nonsense" else raw)
    with pytest.raises(ArchiveError, match=r"a\.zip: .*; delete it and run again") as caught:
        read(archive)
    assert "\n" not in str(caught.value)
