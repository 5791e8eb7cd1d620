"""A damaged journal: a torn end is mended without losing a record, the rest is refused."""

import json
import os
import time
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import TrialState

from hpo import journal as journal_module
from hpo.journal import Journal, check, locked
from hpo.storage import open_storage
from tests.hpo.processes import let_go, started

ROOT = Path(__file__).resolve().parents[2]
STUDY = "sweep"
AFTER = b'{"op_code":8,"worker_id":"w","trial_id":3,"user_attr":{"after":1}}'


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A study of three finished trials and a running one, as Optuna itself writes it."""
    path = tmp_path / "study.journal"
    storage = JournalStorage(JournalFileBackend(str(path)))
    study = optuna.create_study(storage=storage, study_name=STUDY)
    for number in range(3):
        study.enqueue_trial({"x": number / 10})
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        trial.set_user_attr("h\u00f6st", {"op_code": 5, "quotes": 'a "{"op_code":1" b'})
        trial.report(0.5, step=1)
        study.tell(trial, number + 0.25)
    study.ask().set_user_attr("last", {"op_code": 8, "deep": [1, {"x": "y"}]})
    return path


def reopened(path: Path, said: list[str] | None = None) -> optuna.Study:
    lines: list[str] = [] if said is None else said
    storage = open_storage("journal", path, create=False, say=lines.append)
    return optuna.load_study(study_name=STUDY, storage=storage)


def plain(path: Path) -> optuna.Study:
    """The study as Optuna without our backend reads it."""
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name=STUDY, storage=storage)


def kept(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.glob("*.torn-*")}


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_a_whole_journal_is_opened_as_it_is(journal):
    content, said = journal.read_bytes(), []
    assert len(reopened(journal, said).trials) == 4
    assert journal.read_bytes() == content
    assert (said, kept(journal)) == ([], {})


def test_a_whole_journal_needs_no_lock(journal):
    with locked(journal):
        assert len(reopened(journal).trials) == 4


def test_an_empty_journal_is_whole(tmp_path):
    (tmp_path / "study.journal").touch()
    check(tmp_path / "study.journal", pytest.fail)


def test_the_end_is_mended_wherever_it_was_cut(journal):
    whole = journal.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    before, line = whole[:start], whole[start:]
    assert b'"op_code":8' in line
    for cut in range(len(line)):
        journal.write_bytes(before + line[:cut])
        said: list[str] = []
        study = reopened(journal, said)
        if cut == 0:
            assert (journal.read_bytes(), said, kept(journal)) == (before, [], {})
        elif cut == len(line) - 1:
            assert (journal.read_bytes(), kept(journal)) == (whole, {})
            assert said == [f"{journal}: the last record lacked its line end, which was added"]
        else:
            assert journal.read_bytes() == before
            assert kept(journal) == {"study.journal.torn-1": line[:cut]}
            assert f"{cut} bytes of it are now in study.journal.torn-1" in said[0]
            (journal.parent / "study.journal.torn-1").unlink()
        states = [trial.state for trial in study.trials]
        assert states == [TrialState.COMPLETE] * 3 + [TrialState.RUNNING]
        study.tell(study.ask(), 1.0)
        assert [trial.value for trial in plain(journal).trials] == [0.25, 1.25, 2.25, None, 1.0]


def test_a_record_that_joined_a_torn_line_is_saved(journal):
    """What Optuna's own backend does after a torn line; the second record was acknowledged."""
    whole = journal.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    before, line = whole[:start], whole[start:-1]
    for cut in range(1, len(line) + 1):
        journal.write_bytes(before + line[:cut] + AFTER + b"\n")
        study = reopened(journal)
        assert study.trials[3].user_attrs["after"] == 1
        if cut == len(line):
            assert journal.read_bytes() == before + line + b"\n" + AFTER + b"\n"
            assert kept(journal) == {}
        else:
            assert journal.read_bytes() == before + AFTER + b"\n"
            assert kept(journal) == {"study.journal.torn-1": line[:cut]}
            (journal.parent / "study.journal.torn-1").unlink()


@pytest.mark.parametrize("end", [b"\0" * 4096, b"hello\n", b"\n", b"\xff\xfe\n", b"[" * 10**5])
def test_an_end_that_is_no_json_is_cut_off(journal, end):
    whole = journal.read_bytes()
    journal.write_bytes(whole + end)
    assert len(reopened(journal).trials) == 4
    assert journal.read_bytes() == whole
    assert kept(journal) == {"study.journal.torn-1": end}


def test_torn_ends_are_kept_under_names_of_their_own(journal):
    for number in (1, 2, 3):
        with journal.open("ab") as file:
            file.write(b'{"op' * number)
        reopened(journal)
    assert kept(journal) == {f"study.journal.torn-{n}": b'{"op' * n for n in (1, 2, 3)}


GARBAGE = [
    b"garbage",
    b"",
    b"\0\0\0",
    b'{"op_code":8,"worker',
    b"[]",
    b"{}",
    b'{"op_code":8}',
    b'{"op_code":"8","worker_id":"w","trial_id":1,"user_attr":{"a":1}}',
    b'{"op_code":true,"worker_id":"w","study_id":1}',
    b'{"op_code":8,"wor' + AFTER,
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_before_the_last_line_is_refused_with_its_number(journal, garbage):
    lines = journal.read_bytes().splitlines(keepends=True)
    for number in range(1, len(lines)):
        content = b"".join([*lines[: number - 1], garbage + b"\n", *lines[number:]])
        journal.write_bytes(content)
        with pytest.raises(ValueError, match=r"study\.journal:\d+: damaged") as caught:
            reopened(journal)
        assert str(caught.value).startswith(f"{journal}:{number}: damaged (")
        assert "nothing was changed" in str(caught.value)
        assert journal.read_bytes() == content
    assert kept(journal) == {}


def test_a_record_of_something_else_is_refused_in_the_last_line_as_well(journal):
    lines = journal.read_bytes().splitlines()
    journal.write_bytes(b"\n".join([*lines, b'{"a": 1}']))
    with pytest.raises(ValueError, match=rf"study.journal:{len(lines) + 1}: .*op_code is missing"):
        reopened(journal)


@pytest.mark.parametrize(
    "record",
    [
        b'{"op_code":11,"worker_id":"w"}',
        b'{"op_code":8,"worker_id":"w","user_attr":{"a":1}}',
        b'{"op_code":4,"worker_id":"w","study_id":0,"datetime_start":"yesterday"}',
        b'{"op_code":6,"worker_id":"w","trial_id":3,"state":9,"values":null}',
        b'{"op_code":6,"worker_id":"w","trial_id":3,"state":1,"values":[1.0]}',
        b'{"op_code":5,"worker_id":"w","trial_id":3,"param_name":"x","param_value_internal":1,'
        b'"distribution":"{}"}',
    ],
)
def test_records_that_do_not_fit_together_are_refused_with_their_line(journal, record):
    lines = journal.read_bytes().splitlines(keepends=True)
    content = b"".join([*lines, record + b"\n", AFTER + b"\n"])
    journal.write_bytes(content)
    with pytest.raises(ValueError, match=rf"study.journal:{len(lines) + 1}: Optuna cannot replay"):
        reopened(journal)
    assert journal.read_bytes() == content


def test_a_line_beyond_all_bounds_is_refused(journal, monkeypatch):
    monkeypatch.setattr(journal_module, "MAX_LINE_BYTES", 2000)
    lines = len(journal.read_bytes().splitlines())
    with journal.open("ab") as file:
        file.write(b"x" * 5000 + b"\n")
    with pytest.raises(ValueError, match=rf"study.journal:{lines + 1}: .*longer than 2000 bytes"):
        reopened(journal)


def test_what_was_torn_while_it_was_open_is_mended_before_the_next_record(journal):
    said: list[str] = []
    study = reopened(journal, said)
    other = reopened(journal)
    with journal.open("ab") as file:
        file.write(b'{"op_code":8,"worker_id"')
    study.tell(3, 7.5)
    assert kept(journal) == {"study.journal.torn-1": b'{"op_code":8,"worker_id"'}
    assert len(said) == 1
    assert [each.trials[3].value for each in (study, other, plain(journal))] == [7.5] * 3


def test_a_full_disk_harms_no_other_worker(journal, monkeypatch):
    study, other = reopened(journal), reopened(journal)

    def full(descriptor: int) -> None:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - 9)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device \(.* free\).*study.journal"):
            study.set_user_attr("a", 1)
    other.set_user_attr("b", 2)
    study.set_user_attr("c", 3)
    for each in (study, other, plain(journal)):
        assert each.user_attrs == {"b": 2, "c": 3}


def test_the_end_waits_for_a_write_that_is_under_way(journal):
    """Half a line may be another process's write: it is judged under the lock only."""
    whole = journal.read_bytes()
    code = (
        "import sys; from pathlib import Path; from hpo.journal import check;"
        "print('ready', flush=True); check(Path(sys.argv[1]), print)"
    )
    with locked(journal):
        with journal.open("ab") as file:
            file.write(AFTER[:20])
        reader = started("-c", code, journal)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        time.sleep(0.2)  # in which a check without the lock would cut the line off
        assert reader.poll() is None
        with journal.open("ab") as file:
            file.write(AFTER[20:] + b"\n")
    assert reader.communicate(timeout=60)[0] == ""
    assert journal.read_bytes() == whole + AFTER + b"\n"


def test_processes_that_open_a_torn_journal_at_once_all_work(journal):
    whole = journal.read_bytes()
    journal.write_bytes(whole + AFTER[:30])
    code = """
import sys, optuna
from pathlib import Path
from hpo.storage import open_storage
sys.stdin.readline()
storage = open_storage("journal", Path(sys.argv[1]), create=False)
study = optuna.load_study(study_name="sweep", storage=storage)
for _ in range(5):
    study.tell(study.ask(), 1.0)
"""
    said = let_go([started("-c", code, journal) for _ in range(4)], patience_s=100)
    assert sum("torn-1" in out for out in said) == 1
    assert kept(journal) == {"study.journal.torn-1": AFTER[:30]}
    assert journal.read_bytes().startswith(whole)
    trials = plain(journal).trials
    assert len(trials) == 4 + 20
    assert [trial.value for trial in trials[:3]] == [0.25, 1.25, 2.25]
    assert all(trial.value == 1.0 for trial in trials[4:])


def test_a_relative_path_survives_a_lock_that_a_killed_process_left(journal, monkeypatch):
    """Optuna waits for ever where its lock dangles, as with a path relative to another folder."""
    monkeypatch.chdir(journal.parent.parent)
    monkeypatch.setattr(
        journal_module, "JournalFileSymlinkLock", lambda path: JournalFileSymlinkLock(path, 3)
    )
    study = reopened(Path(journal.parent.name) / journal.name)
    os.symlink(journal, f"{journal}.lock")
    study.set_user_attr("a", 1)
    assert plain(journal).user_attrs == {"a": 1}
    with locked(journal):
        assert Path(os.readlink(f"{journal}.lock")).is_absolute()


def test_the_lock_is_released_where_a_write_fails(journal):
    backend = Journal(journal, pytest.fail)
    with pytest.raises(TypeError):
        backend.append_logs([{"op_code": object()}])
    assert not os.path.lexists(f"{journal}.lock")
