"""Runs packed: the commands that made them, the same bytes each time, and hostile archives."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.pack_file import opened_pack
from pipeline.packing import write_pack
from pipeline.run_commands import commands_of
from tests.conftest import write_experiment
from tests.packs import CHOSEN, FACTS, RIVAL, crafted, made_up_run, members_of, reseal, write_json
from tests.runs import Capture, refused
from tools import pack, replay

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    made_up_run(folder / "run", write_experiment(folder))
    write_pack(folder / "run", folder / "run.zip", weights=False)
    return folder


@pytest.fixture
def made(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original / "run", tmp_path / "run")


@pytest.fixture
def archive(original: Path, tmp_path: Path) -> Path:
    return shutil.copy(original / "run.zip", tmp_path / "run.zip")


def lines(run: Path) -> list[str]:
    return [
        one.line(Path("f"), Path("r")).replace("experiment.yaml", "E") for one in commands_of(run)
    ]


def test_the_commands_are_those_that_made_the_run(made: Path) -> None:
    assert lines(made) == [
        "python search.py f/search/seed-0/E --run r --seeds 0,1 --set run.threads=2",
        f"python derive.py f/architectures/{CHOSEN}.yaml --run r --set run.threads=2",
        f"python retrain.py f/retrain/{CHOSEN}/seed-0/E --run r --set run.threads=2",
        "python retrain.py f/retrain/layout-aa/seed-3/E --run r --architecture "
        "f/retrain/layout-aa/seed-3/architecture.json --set run.threads=2",
        "python compare.py f/comparison.yaml --run r --set run.threads=2",
    ]


def test_a_derivation_has_the_threads_of_the_search_whatever_its_trainings_had(made: Path) -> None:
    """It scores the SuperNet in its process; what it trains has one thread each at any setting."""
    for kind in ("probes", "finals"):
        training = made / kind / "a d" / "seed-1000/retrain/layout-ad/seed-1000"
        write_json(training / "environment.json", FACTS | {"threads": 1})
    assert lines(made)[1].endswith("--run r --set run.threads=2")


def test_searches_with_other_threads_come_one_by_one_and_ranks_by_torchrun(made: Path) -> None:
    path = made / "search/seed-1/environment.json"
    write_json(path, json.loads(path.read_text()) | {"threads": 1, "ranks": 4})
    alone, other, together = lines(made)[:3]
    assert alone == "python search.py f/search/seed-0/E --run r --set run.threads=2"
    four = "torchrun --nproc_per_node 4 -- search.py f/search/seed-1/E --run r"
    assert other == f"{four} --set run.threads=1"
    assert "--seeds 0,1" in together


def test_a_layout_of_an_older_version_is_derived_by_the_last_experiment_that_fits(
    made: Path,
) -> None:
    own, last = (made / "architectures" / f"{name}.yaml" for name in (CHOSEN, "experiment"))
    own.rename(last)
    assert "architectures/E" in lines(made)[1]
    last.write_text(last.read_text().replace("method: argmax", "method: top_k"))
    with pytest.raises(ValueError, match=f"nothing says how {CHOSEN} was derived"):
        commands_of(made)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda run: (run / "search/seed-1/pi.csv").unlink(), "search/seed-1: not done"),
        (lambda run: (run / "retrain/layout-aa/seed-3/result.json").unlink(), "not done"),
        (lambda run: (run / "search/seed-0/environment.json").unlink(), "not found"),
        (lambda run: (run / "search/seed-0/environment.json").write_text("{"), "damaged"),
        (
            lambda run: write_json(run / "search/seed-0/environment.json", {"threads": "two"}),
            "threads: Input should be a valid integer",
        ),
        (lambda run: write_json(run / "comparison.json", {"results": {RIVAL: []}}), "chosen since"),
        (lambda run: (run / "link").symlink_to("/etc/passwd"), "is a link"),
        (lambda run: (run / "search/seed-0/last.safetensors").write_text("x"), "damaged"),
        (shutil.rmtree, "no run directory"),
        (lambda run: [shutil.rmtree(run), run.mkdir()], "no search, layout or training"),
    ],
)
def test_what_cannot_be_packed_is_said_in_one_line(
    made: Path, tmp_path: Path, capsys: Capture, spoil: Callable[[Path], Any], words: str
) -> None:
    spoil(made)
    assert words in refused(pack, capsys, made)
    assert not (tmp_path / "run.zip").exists()


def test_nothing_else_is_overwritten(made: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mine.zip").write_text("precious")
    assert "no archive of a run" in refused(pack, capsys, made, tmp_path / "mine.zip")
    assert (tmp_path / "mine.zip").read_text() == "precious"


def test_an_archive_has_a_folder_of_its_own(made: Path, tmp_path: Path, capsys: Capture) -> None:
    inside = refused(pack, capsys, made, made / "search" / "x.zip")
    assert "would be packed too; put it elsewhere" in inside
    assert not (made / "search" / "x.zip").exists()
    absent = tmp_path / "absent"
    said = refused(pack, capsys, made, absent / "x.zip").splitlines()
    assert said == [f"{absent / 'x.zip'}: there is no folder {absent}; make it first"]


def test_the_same_run_gives_the_same_bytes_and_weights_only_where_they_are_asked_for(
    made: Path, archive: Path, tmp_path: Path
) -> None:
    write_pack(made, tmp_path / "again.zip", weights=False)
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    names = members_of(archive)
    assert {"manifest.json", "requirements.lock", "run/search/seed-0/pi.npz"} < names.keys()
    kinds = {Path(name).suffix for name in names}
    assert not {".safetensors", ".html", ""} & kinds
    with opened_pack(archive) as one:
        files = one.manifest.files
        weights = files["search/seed-0/last.safetensors"]
        assert weights.tensors is not None
        assert list(weights.tensors) == ["a", "b"]
        assert files["report.html"].sha256
        assert not files["report.html"].held
        assert not any("tensorboard" in name or name.endswith("lock") for name in files)
        assert files["architectures/interleaved.json"].remade
        assert not files["search/seed-0/environment.json"].remade
    write_pack(made, tmp_path / "weights.zip", weights=True)
    with opened_pack(tmp_path / "weights.zip") as one:
        content = one.read("search/seed-0/last.safetensors")
    assert content == (made / "search/seed-0/last.safetensors").read_bytes()


def test_a_changed_or_missing_byte_is_seen(archive: Path, tmp_path: Path, capsys: Capture) -> None:
    content = archive.read_bytes()
    bad = tmp_path / "bad.zip"
    for place in [*range(0, len(content), len(content) // 40), len(content) - 1]:
        changed = bytearray(content)
        changed[place] ^= 0x10
        bad.write_bytes(changed)
        with pytest.raises(ValueError, match=r"bad\.zip: (damaged|no archive)"), opened_pack(bad):
            pass
    for short in (b"", content[:100], content[:-1], content[1:]):
        bad.write_bytes(short)
        assert "bad.zip: " in refused(replay, capsys, bad)


def test_other_files_are_no_archive(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.zip").write_text("words " * 50)
    assert "no archive of tools.pack" in refused(replay, capsys, tmp_path / "x.zip")
    assert "is not a file" in refused(replay, capsys, tmp_path)
    assert "nothing.zip: No such file" in refused(replay, capsys, tmp_path / "nothing.zip")


def changed(archive: Path, change: Callable[[Members], Any], **more: Any) -> Path:
    members = members_of(archive)
    change(members)
    return crafted(archive.with_name("bad.zip"), list(members.items()), **more)


def with_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Members], None]:
    def changed(members: Members) -> None:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        members["manifest.json"] = json.dumps(manifest).encode()

    return changed


FILE = "search/seed-0/experiment.yaml"
ENTRY = {"size": 1, "sha256": "0" * 64, "held": False, "remade": False}
HOSTILE: dict[str, tuple[Callable[[Members], Any], str]] = {
    "above": (lambda m: m.update({"../evil": b"x"}), "unsafe name '../evil'"),
    "absolute": (lambda m: m.update({"/tmp/evil": b"x"}), "unsafe name '/tmp/evil'"),
    "windows": (lambda m: m.update({"c:evil": b"x"}), "unsafe name 'c:evil'"),
    "extra": (lambda m: m.update({"run/extra.json": b"x"}), "holds besides run/extra.json"),
    "missing": (lambda m: m.pop(f"run/{FILE}"), f"lacks run/{FILE}"),
    "no manifest": (lambda m: m.pop("manifest.json"), "holds no members called manifest.json"),
    "other content": (lambda m: m.update({f"run/{FILE}": b"x"}), f"{FILE} is not the file"),
    "other lock": (lambda m: m.update({"requirements.lock": b"x"}), "requirements.lock is not"),
    "no json": (lambda m: m.update({"manifest.json": b"[1]"}), "manifest.json: not a JSON object"),
    "deep": (lambda m: m.update({"manifest.json": b"[" * 10**5}), "manifest.json: not a JSON"),
    "version": (with_manifest(lambda m: m.update(version=2)), "version 2; this program reads 1"),
    "verb": (
        with_manifest(lambda m: m["commands"][0].update(verb="sweep")),
        "commands.0.verb: Input should be 'search'",
    ),
    "experiment": (
        with_manifest(lambda m: m["commands"][0].update(experiment="/etc/passwd")),
        "need '/etc/passwd', which the archive does not hold",
    ),
    "name": (
        with_manifest(lambda m: m["files"].update({"../../x": ENTRY})),
        "unsafe name '../../x'",
    ),
    "key": (with_manifest(lambda m: m.update(run="rm")), "run: Extra inputs are not permitted"),
    "size": (
        with_manifest(lambda m: m["files"][FILE].update(size=3)),
        "more than the 3 expected",
    ),
    "lock outside": (
        with_manifest(lambda m: m["locks"].update({"../x": "0" * 64})),
        "lacks ../x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_in_one_line(
    archive: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, words = HOSTILE[kind]
    bad = changed(archive, change)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    line = refused(replay, capsys, bad, "--anyway")
    assert line.startswith(f"{bad}: ")
    assert words in line
    assert sorted(tmp_path.rglob("*")) == before


def test_links_doubles_and_bombs_are_refused(
    archive: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = changed(archive, lambda members: None, link=f"run/{FILE}")
    assert "a link or a device" in refused(replay, capsys, bad)
    members = list(members_of(archive).items())
    with pytest.warns(UserWarning, match="Duplicate name"):
        crafted(bad, [*members, ("manifest.json", b"{}")])
    assert "holds 2 members called manifest.json" in refused(replay, capsys, bad)

    monkeypatch.setattr("pipeline.pack_file.MOST_BYTES", 1000)
    assert "more than 1,000" in refused(replay, capsys, archive)
    monkeypatch.setattr("pipeline.pack_file.MAX_JSON_BYTES", 1000)
    assert "more than the 1,000 expected" in refused(replay, capsys, archive)
    monkeypatch.setattr("utils.archives._MOST_MEMBERS", 10)
    assert "more than 10 members" in refused(replay, capsys, archive)


def test_a_size_that_lies_gives_no_more_bytes_than_it_says(archive: Path, capsys: Capture) -> None:
    with zipfile.ZipFile(archive) as opened:
        size = opened.getinfo(f"run/{FILE}").file_size
    content = archive.read_bytes()
    # In the directory at the end; the name stands 46 bytes behind an entry's start.
    entry = content.rindex(f"run/{FILE}".encode()) - 46
    assert content[entry : entry + 4] == b"PK\1\2"
    assert int.from_bytes(content[entry + 24 : entry + 28], "little") == size
    lying = content[: entry + 24] + (9).to_bytes(4, "little") + content[entry + 28 :]
    archive.write_bytes(lying)
    assert f"{archive}: " in refused(replay, capsys, reseal(archive))
