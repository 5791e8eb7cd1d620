"""Damaged files, one battery for all kinds: an error that names the file, or what it says."""

from pathlib import Path

import pytest

from tests import damaged_files, damaged_tensors
from tests.damage import DAMAGES, Damage, Kind

KINDS = {f"{kind.name} {number}": kind for number, kind in enumerate(
    [*damaged_tensors.KINDS, *damaged_files.KINDS])}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_damaged_file_is_refused_by_name(kind: Kind, damage: Damage, tmp_path: Path) -> None:
    kind.write(tmp_path)
    path = tmp_path / kind.name
    kind.read(path)
    assert kind.suffer(damage, path) > 2


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_link_to_a_good_file_is_read(kind: Kind, tmp_path: Path) -> None:
    kind.write(tmp_path)
    path = tmp_path / kind.name
    path.symlink_to(path.rename(tmp_path / "real"))
    kind.read(path)
