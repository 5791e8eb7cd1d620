"""Which checkpoint is said to be the newest, whatever becomes of the files meanwhile."""

from pathlib import Path

import pytest

from tests import tiny
from training import resume
from training.resume import LAST, PREVIOUS, Checkpoints


def checkpoints_of(folder: Path) -> Checkpoints:
    """A folder with the checkpoints of steps 3 and 4."""
    checkpoints = Checkpoints(folder, "identity", steps=9)
    state = tiny.state_of(tiny.supernet())
    for state.step in (3, 4):
        checkpoints.save(state)
    return checkpoints


def test_the_newest_is_the_last_whole_one(tmp_path: Path) -> None:
    checkpoints = checkpoints_of(tmp_path)
    assert "step 4" in checkpoints.newest()
    (tmp_path / LAST).write_bytes(b"damaged")
    assert checkpoints.newest() == (
        f"the last whole checkpoint is that of step 3 ({tmp_path / PREVIOUS})"
    )
    (tmp_path / PREVIOUS).unlink()
    assert checkpoints.newest() == "there is no checkpoint yet, so it begins again at step 0"


def test_a_checkpoint_that_is_renamed_between_two_looks_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = checkpoints_of(tmp_path)
    read_header = resume.read_header

    def late(path: Path) -> dict[str, object]:
        (tmp_path / LAST).unlink(missing_ok=True)
        return read_header(path)

    monkeypatch.setattr(resume, "read_header", late)
    assert "step 3" in checkpoints.newest()
