"""What counts as another's use of the machine while something is timed."""

import os
from pathlib import Path

import pytest

from benchmarks import cpu_counters as cores
from benchmarks.cpu_counters import other_cores, read_cpu


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


def test_other_processes_are_counted_without_our_own_time() -> None:
    before = cores.CpuReading(all_s=100.0, own_s=10.0, at_s=0.0)
    after = cores.CpuReading(all_s=104.0, own_s=12.0, at_s=2.0)
    assert other_cores(before, after) == pytest.approx(1.0)
    assert other_cores(before, cores.CpuReading(all_s=101.9, own_s=12.0, at_s=2.0)) == 0.0
