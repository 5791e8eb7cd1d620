"""The cores that a process may use, and what counts as another's use of the machine."""

import os
from pathlib import Path

import pytest

from training.distributed import Ranks
from utils import cores
from utils.cores import other_cores, read_cpu, usable_cores

ROOT = Path(__file__).resolve().parents[2]


def read(path: Path, monkeypatch: pytest.MonkeyPatch, counters: str) -> cores.CpuReading:
    path.write_text(f"cpu  {counters}\ncpu0 9 9 9 9 9 9 9 9 9 9\n")
    monkeypatch.setattr(cores, "_STAT", path)
    found = read_cpu()
    return found


def test_idle_time_is_nobodys_and_stolen_time_another_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    used = read(tmp_path / "stat", monkeypatch, "1 2 4 800 1600 8 16 32 6400 12800")
    assert used.all_s == pytest.approx((1 + 2 + 4 + 8 + 16 + 32) / tick)
    before = cores.CpuReading(all_s=used.all_s, own_s=0.0, at_s=1.0)
    later = read(tmp_path / "stat", monkeypatch, f"1 2 4 800 1600 8 16 {32 + tick} 6400 12800")
    after = cores.CpuReading(all_s=later.all_s, own_s=0.0, at_s=3.0)
    assert other_cores(before, after) == pytest.approx(0.5)


def test_the_cores_of_a_process_are_counted_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    path = tmp_path / "stat"
    rows = [f"cpu{n} {used * tick} 0 0 9 9 0 0 0 0 0" for n, used in (("", 111), (0, 1), (1, 10))]
    path.write_text("\n".join([*rows, f"cpu2 {100 * tick} 0 0 9 9 0 0 0 0 0", "intr 5", ""]))
    monkeypatch.setattr(cores, "_STAT", path)

    def seconds(*cores: int) -> float:
        reading = read_cpu(cores)
        return reading.all_s

    assert [seconds(), seconds(0), seconds(0, 2)] == [111.0, 1.0, 101.0]
    # A container's own view numbers its cores anew.
    assert seconds(1, 7) == 111.0


def test_other_processes_are_counted_without_our_own_time() -> None:
    before = cores.CpuReading(all_s=100.0, own_s=10.0, at_s=0.0)
    after = cores.CpuReading(all_s=104.0, own_s=12.0, at_s=2.0)
    assert other_cores(before, after) == pytest.approx(1.0)
    assert other_cores(before, cores.CpuReading(all_s=101.9, own_s=12.0, at_s=2.0)) == 0.0


def test_cores_are_those_that_the_process_may_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert usable_cores() == 3
    assert Ranks(local_world=2).threads == 1


def test_without_bound_processes_all_cores_are_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores() == 6
    assert Ranks(local_world=2).threads == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
