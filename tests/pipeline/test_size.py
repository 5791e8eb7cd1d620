"""The memory that a process may take, by the control groups of a machine that is made up."""

from pathlib import Path

import pytest
import torch

from pipeline.resources import memory_bytes

CPU = torch.device("cpu")
MACHINE = 64 * 2**30
NO_LIMIT_V1 = "9223372036854771712"


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": MACHINE // 4096}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__)


def limited(root: Path, groups: str, **limits: str | int) -> int:
    """The memory where the process is in those groups, and those files stand below the mount."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, limit in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    return memory_bytes(CPU, root)


@pytest.mark.parametrize(
    ("groups", "limits", "wanted"),
    [
        ("0::/\n", {"memory.max": 2**30}, 2**30),
        ("0::/\n", {"memory.max": "max"}, MACHINE),
        ("0::/a/b\n", {"a/b/memory.max": 3 * 2**30, "a/memory.max": 2**30}, 2**30),
        ("0::/a/b\n", {"a/b/memory.max": 2**30, "a/memory.max": "max"}, 2**30),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": 2**30}, 2**30),
        ("0::/a\n", {"a/memory.max": 2 * MACHINE}, MACHINE),
        # Of the others of the machine.
        ("0::/a\n", {"b/memory.max": 2**30}, MACHINE),
        # The host's name of the group, which the container sees as the mount.
        ("0::/docker/4f\n", {"memory.max": 2**30}, 2**30),
        ("0::/../4f\n", {"memory.max": 2**30}, 2**30),
        ("4:memory:/a:b\n", {"memory/a:b/memory.limit_in_bytes": 2**30}, 2**30),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": NO_LIMIT_V1}, MACHINE),
        ("4:cpu,memory:/a/b\n0::/\n", {"memory/a/memory.limit_in_bytes": 2**30}, 2**30),
        ("3:cpu:/a\n", {"memory/a/memory.limit_in_bytes": 2**30}, MACHINE),
    ],
)
def test_memory_is_the_least_that_the_machine_or_a_group_allows(
    tmp_path: Path, groups: str, limits: dict[str, str | int], wanted: int
) -> None:
    assert limited(tmp_path, groups, **limits) == wanted


def test_a_system_without_groups_has_what_the_machine_has(tmp_path: Path) -> None:
    assert memory_bytes(CPU, tmp_path) == MACHINE
