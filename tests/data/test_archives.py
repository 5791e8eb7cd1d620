"""Zip files: one expected member as a bounded stream; the hostile are refused, nothing unpacked."""

import stat
import zipfile
from pathlib import Path

import pytest

from data.download import ArchiveError, open_member

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
