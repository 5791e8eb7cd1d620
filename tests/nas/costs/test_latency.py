"""Latency: measured in turn, thrown away on a busy machine."""

import itertools

import pytest
import torch

from nas.costs import latency
from tests import tiny
from utils.cores import CpuReading


def models() -> dict[str, tiny.LanguageModel]:
    chosen = tiny.candidates("attention", "dense")
    return {
        "small": tiny.language_model([[chosen[0]]]),
        "large": tiny.language_model([[chosen[0]]] * 30),
    }


def measure(repeats: int = 5) -> latency.Latencies:
    ids_BT = torch.arange(8)[None]
    return latency.measure_latency(
        models(), ids_BT=ids_BT, repeats=repeats, device=torch.device("cpu")
    )


def readings(monkeypatch: pytest.MonkeyPatch, cores: list[float]) -> None:
    made = []
    for value in cores:
        made += [CpuReading(0, 0, 0), CpuReading(value, 0, 1)]
    values = itertools.chain(made, itertools.repeat(made[-1]))
    monkeypatch.setattr(latency, "read_cpu", lambda: next(values))
    monkeypatch.setattr(latency, "_REST_S", 0.0)


def test_the_median_of_each_model_is_taken_and_they_run_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings(monkeypatch, [0.0])
    # Two readings of the clock per pass; the passes of small take 1, 9, 2, of large 5, 6, 7 ms.
    durations = [1, 5, 9, 6, 2, 7]
    moments = [0.0]
    for duration in durations:
        moments += [moments[-1] + duration * 1e-3, moments[-1] + duration * 1e-3]
    clock = iter(moments)
    monkeypatch.setattr(latency.time, "perf_counter", lambda: next(clock))
    found = measure(3)
    assert found.median_ms["small"] == pytest.approx(2)
    assert found.median_ms["large"] == pytest.approx(6)
    assert "median of 3, in turn" in found.note
    assert found.key["segment"] == 8


def test_a_busy_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    readings(monkeypatch, [1.0, 0.1])
    assert measure(3).median_ms.keys() == {"small", "large"}


def test_a_busy_machine_gives_no_figure_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    readings(monkeypatch, [1.0, 1.5, 1.2])
    found = measure(3)
    assert found.median_ms == {}
    assert "not measured, other processes used 1.2 cores" in found.note
