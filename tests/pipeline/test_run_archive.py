"""Runs packed: the commands that made them, the same bytes each time, and hostile archives."""

import json
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.run_archive import commands_of, unpack, write_archive
from tests.conftest import write_experiment
from tests.packs import CHOSEN, FACTS, RIVAL, made_up_run, members_of, write_json
from tests.runs import Capture, refused
from tools import pack, replay

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    made_up_run(folder / "run", write_experiment(folder))
    write_archive(folder / "run", folder / "run.zip", weights=False)
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
        "python search.py f/search/seed-0/E --run r --set run.threads=2",
        "python search.py f/search/seed-1/E --run r --set run.threads=2",
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
    assert lines(made)[3].endswith("--run r --set run.threads=2")


def test_searches_have_their_own_threads_and_several_processes_come_by_torchrun(made: Path) -> None:
    path = made / "search/seed-1/environment.json"
    write_json(path, json.loads(path.read_text()) | {"threads": 1, "ranks": 4})
    four = "torchrun --nproc_per_node 4 -- search.py f/search/seed-1/E --run r"
    assert lines(made)[1] == f"{four} --set run.threads=1"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda run: (run / "search/seed-1/pi.csv").unlink(), "search/seed-1: not done"),
        (lambda run: (run / "retrain/layout-aa/seed-3/result.json").unlink(), "not done"),
        (lambda run: (run / "search/seed-0/environment.json").unlink(), "No such file"),
        (lambda run: (run / "search/seed-0/environment.json").write_text("{"), "environment.json"),
        (lambda run: write_json(run / "comparison.json", {"results": {RIVAL: []}}), "chosen since"),
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


def test_nothing_is_overwritten_and_an_archive_lies_outside_of_its_run(
    made: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "mine.zip").write_text("precious")
    assert "is there already" in refused(pack, capsys, made, tmp_path / "mine.zip")
    assert (tmp_path / "mine.zip").read_text() == "precious"
    assert "put it elsewhere" in refused(pack, capsys, made, made / "search" / "x.zip")
    assert "No such file" in refused(pack, capsys, made, tmp_path / "absent" / "x.zip")


def test_the_same_run_gives_the_same_bytes_and_weights_only_where_they_are_asked_for(
    made: Path, archive: Path, tmp_path: Path
) -> None:
    write_archive(made, tmp_path / "again.zip", weights=False)
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    names = members_of(archive)
    assert {"manifest.json", "run/search/seed-0/pi.npz"} < names.keys()
    assert not {".safetensors", ".html", ""} & {Path(name).suffix for name in names}
    assert not any("tensorboard" in name or name.endswith("lock") for name in names)
    write_archive(made, tmp_path / "weights.zip", weights=True)
    unpack(tmp_path / "weights.zip", tmp_path / "unpacked")
    name = "search/seed-0/last.safetensors"
    assert (tmp_path / "unpacked" / name).read_bytes() == (made / name).read_bytes()


def test_other_files_are_no_archive(archive: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x.zip").write_text("words " * 50)
    assert "x.zip: damaged (File is not a zip file)" in refused(replay, capsys, tmp_path / "x.zip")
    assert "nothing.zip: No such file" in refused(replay, capsys, tmp_path / "nothing.zip")
    archive.write_bytes(archive.read_bytes()[:-100])
    assert f"{archive}: damaged" in refused(replay, capsys, archive)


def with_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Members], None]:
    def changed(members: Members) -> None:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        members["manifest.json"] = json.dumps(manifest).encode()

    return changed


FILE = "search/seed-0/experiment.yaml"
HOSTILE: dict[str, tuple[Callable[[Members], Any], str]] = {
    "above": (lambda m: m.update({"run/../../evil": b"x"}), "unsafe name 'run/../../evil'"),
    "absolute": (lambda m: m.update({"/tmp/evil": b"x"}), "unsafe name '/tmp/evil'"),
    "windows": (lambda m: m.update({"c:evil": b"x"}), "unsafe name 'c:evil'"),
    "extra": (lambda m: m.update({"run/extra.json": b"x"}), "'run/extra.json' is not a file that"),
    "missing": (lambda m: m.pop(f"run/{FILE}"), f"lacks '{FILE}'"),
    "no manifest": (lambda m: m.pop("manifest.json"), "no archive of tools.pack"),
    "other content": (lambda m: m.update({f"run/{FILE}": b"x"}), f"'run/{FILE}' is not a file"),
    "no json": (lambda m: m.update({"manifest.json": b"[1]"}), "manifest.json: content: "),
    "verb": (
        with_manifest(lambda m: m["commands"][0].update(verb="sweep")),
        "commands.0.verb: Input should be 'search'",
    ),
    "experiment": (
        with_manifest(lambda m: m["commands"][0].update(experiment="/etc/passwd")),
        "need '/etc/passwd', which the archive lacks",
    ),
    "link": (lambda m: None, "a link or a device"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_is_refused_in_one_line(
    archive: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, words = HOSTILE[kind]
    members = members_of(archive)
    change(members)
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as opened:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            mode = stat.S_IFLNK if kind == "link" and name.endswith(FILE) else stat.S_IFREG
            info.external_attr = (mode | 0o644) << 16
            opened.writestr(info, content)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    line = refused(replay, capsys, bad, "--anyway")
    assert line.startswith(f"{bad}: ")
    assert words in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bomb_is_refused_unread(
    archive: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.run_archive._MOST_BYTES", 1000)
    assert "more than 1,000" in refused(replay, capsys, archive)
