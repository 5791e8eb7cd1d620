"""Archives: one expected member as a bounded stream; the hostile are refused, nothing unpacked."""

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from data.archives import ArchiveError, open_member, read_member

TEXT = b"the member's own text\n" * 500
UNSAFE = ["../evil", "a/../../evil", "/etc/evil", "\\evil", "a\\..\\evil", "C:\\evil", "c:evil"]


def write(path: Path, *extra: str, member: str = "box/text", content: bytes = TEXT) -> Path:
    """An archive of the kind that its name says, with extra entries before the member."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
            for name in extra:
                info = zipfile.ZipInfo("placeholder")
                info.filename = info.orig_filename = name
                opened.writestr(info, b"evil")
            opened.writestr(member, content)
        return path
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as tar:
        for name in (*extra, member):
            header = tarfile.TarInfo(name)
            header.size = len(content if name == member else b"evil")
            tar.addfile(header, io.BytesIO(content if name == member else b"evil"))
    return path


KINDS = ["a.zip", "a.tar", "a.tar.gz", "a.tgz"]


@pytest.mark.parametrize("name", KINDS)
def test_a_member_comes_out_exactly(tmp_path: Path, name: str) -> None:
    archive = write(tmp_path / name, "box/other")
    assert read_member(archive, "box/text", limit=1 << 20) == TEXT
    with open_member(archive, "box/text", limit=1 << 20) as stream:
        assert b"".join(stream) == TEXT
    assert list(tmp_path.iterdir()) == [archive]


def test_a_gz_file_has_one_member_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "text.gz").write_bytes(gzip.compress(TEXT))
    assert read_member(tmp_path / "text.gz", "", limit=len(TEXT)) == TEXT
    with pytest.raises(ArchiveError, match="holds more than the 10,999 bytes"):
        read_member(tmp_path / "text.gz", "", limit=len(TEXT) - 1)


@pytest.mark.parametrize("unsafe", UNSAFE)
@pytest.mark.parametrize("name", KINDS)
def test_unsafe_names_are_refused(tmp_path: Path, name: str, unsafe: str) -> None:
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    archive = write(folder / name, unsafe)
    with pytest.raises(ArchiveError, match=r"holds the unsafe name .*; delete it"):
        read_member(archive, "box/text", limit=1 << 20)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


def test_a_name_that_zipfile_would_cut_is_refused(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", "box/a\0b")
    with pytest.raises(ArchiveError, match="holds the unsafe name"):
        read_member(archive, "box/text", limit=1 << 20)


@pytest.mark.parametrize("name", ["a..b", "..a/b", "a/...", "box/x:y"])
def test_harmless_dots_are_allowed(tmp_path: Path, name: str) -> None:
    archive = write(tmp_path / "a.zip", name)
    assert read_member(archive, "box/text", limit=1 << 20) == TEXT


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
@pytest.mark.parametrize("member", ["box/text", "box/other"])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes, member: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        header = tarfile.TarInfo(member)
        header.type, header.linkname = kind, "/etc/passwd"
        tar.addfile(header)
        tar.addfile(tarfile.TarInfo("box/text"))
    with pytest.raises(ArchiveError, match="a link or a device"):
        read_member(tmp_path / "a.tar", "box/text", limit=1 << 20)


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
@pytest.mark.parametrize("member", ["box/text", "box/other"])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, mode: int, member: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as opened:
        info = zipfile.ZipInfo(member)
        info.external_attr = (mode | 0o777) << 16
        opened.writestr(info, "/etc/passwd")
    with pytest.raises(ArchiveError, match="a link or a device"):
        read_member(tmp_path / "a.zip", "box/text", limit=1 << 20)


def test_a_zip_that_says_it_is_large_is_refused_unread(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", content=bytes(1 << 20))
    with pytest.raises(ArchiveError, match="says it holds 1,048,576 bytes, more than the 1,000"):
        read_member(archive, "box/text", limit=1000)


def test_a_zip_that_says_it_is_small_gives_no_more(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip", content=bytes(1 << 20))
    raw = archive.read_bytes()
    assert raw.count((1 << 20).to_bytes(4, "little")) == 2
    archive.write_bytes(raw.replace((1 << 20).to_bytes(4, "little"), (900).to_bytes(4, "little")))
    with pytest.raises(ArchiveError, match="is damaged"):
        read_member(archive, "box/text", limit=1000)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
@pytest.mark.parametrize("member", ["box/text", "box/after"])
def test_a_tar_is_bounded_also_where_it_is_skipped(tmp_path: Path, name: str, member: str) -> None:
    archive = write(tmp_path / name, member="box/text", content=bytes(1 << 22))
    with pytest.raises(ArchiveError, match="holds more than the 100,000 bytes expected"):
        read_member(archive, member, limit=100_000)


@pytest.mark.parametrize("name", KINDS)
def test_a_missing_member_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError, match="holds no members called box/texts"):
        read_member(write(tmp_path / name), "box/texts", limit=1 << 20)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("box/text", "one")
        with pytest.warns(UserWarning, match="Duplicate"):
            opened.writestr("box/text", "two")
    with pytest.raises(ArchiveError, match="holds 2 members called box/text"):
        read_member(archive, "box/text", limit=1 << 20)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    archive = write(tmp_path / "a.zip")
    raw = bytearray(archive.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(raw)
    with pytest.raises(ArchiveError, match="box/text is encrypted"):
        read_member(archive, "box/text", limit=1 << 20)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("how", ["cut", "flipped", "nonsense"])
def test_damage_is_one_line_that_names_the_file(tmp_path: Path, name: str, how: str) -> None:
    archive = write(tmp_path / name)
    raw = bytearray(archive.read_bytes())
    if how == "cut":
        del raw[len(raw) // 2 :]
    elif how == "flipped":
        raw[2 if name == "a.tar" else 60] ^= 0xFF
    archive.write_bytes(b"nonsense" if how == "nonsense" else raw)
    with pytest.raises(ArchiveError, match=r"a\.\S+: .*; delete it and run again") as caught:
        read_member(archive, "box/text", limit=1 << 20)
    assert "\n" not in str(caught.value)
