"""Latency: measured in turn, of what it says, and refused where it is not sure."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nas.costs import latency
from nas.costs.latency import WORKLOADS, Shapes
from nas.costs.model import CostModel
from tests import tiny
from training.config import OptimiserConfig
from training.step import Forward

CPU = torch.device("cpu")


def shapes(batch: int = 1, segment: int = 8) -> Shapes:
    ids = torch.arange(4 * segment).reshape(4, segment) % tiny.VOCABULARY
    return Shapes(ids[:batch], ids, Forward(CPU, "float32"), OptimiserConfig(lr=0.01))


def models() -> dict[str, tiny.LanguageModel]:
    chosen = tiny.candidates("attention", "dense")
    return {
        "small": tiny.language_model([[chosen[0]]]),
        "large": tiny.language_model([[chosen[0]]] * 30),
    }


def measure(rounds: int = 5) -> latency.Latencies:
    return latency.measure_latency(models(), shapes(), rounds=rounds)


def clock(monkeypatch: pytest.MonkeyPatch, durations_ms: list[float]) -> None:
    """Two readings per pass, the next pass at once."""
    moments = [0.0]
    for duration in durations_ms:
        moments += [moments[-1] + duration * 1e-3, moments[-1] + duration * 1e-3]
    taken = iter(moments)
    monkeypatch.setattr(latency.time, "perf_counter", lambda: next(taken))


def test_the_median_of_each_model_is_taken_and_they_run_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The passes of small take 100, 300, 120, of large 500, 1500, 600 ms.
    clock(monkeypatch, [100, 500, 300, 1500, 120, 600])
    measured = measure(3)
    assert measured.median_ms == pytest.approx({"small": 120, "large": 600})
    assert (
        f"median of 3, in turn, float32, cpu, {torch.get_num_threads()} threads, 1 x 8 tokens"
        in (measured.note)
    )
    assert measured.key["segment"] == 8
    clock(monkeypatch, [100, 500, 300, 1500, 120, 600])
    timing: Any = SimpleNamespace(shapes=shapes(), rounds=3, take_unsure=False)
    assert CostModel.times_of(timing, "latency", models()) == pytest.approx(measured.median_ms)


def test_equal_models_are_equal_also_where_their_times_have_two_modes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The medians of the milliseconds are 2,000 and 6,000."""
    rounds_ms = [(2000, 2000), (2000, 2000), (6000, 6000), (6000, 6000), (2000, 6000)]
    clock(monkeypatch, [ms for of_round in rounds_ms for ms in of_round])
    medians = [np.median(ms_N) for ms_N in times(counted([], "one", "two"), 5).values()]
    assert medians == pytest.approx([4000, 4000])


def counted(calls: list[str], *names: str) -> dict[str, Any]:
    return {name: (lambda name=name: calls.append(name)) for name in names}


def test_a_short_pass_is_timed_behind_one_of_the_same_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind another model's it would find that one's weights in the caches."""
    monkeypatch.setattr(latency, "_LEAST_MS", 0.0)
    clock(monkeypatch, [99, 40, 100, 60, 40, 100])
    calls = list[str]()
    taken = times(counted(calls, "short", "long"), 2)
    assert calls == ["short", "short", "long"] * 2
    assert {name: ms_N.tolist() for name, ms_N in taken.items()} == {
        "short": pytest.approx([40, 40]),
        "long": pytest.approx([100, 100]),
    }


def test_on_a_gpu_a_pass_is_timed_by_its_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the host, which is done before, or is busy with something else."""
    calls, ms = list[str](), iter([7.0, 5.0])
    event = SimpleNamespace(
        record=lambda: calls.append("record"),
        synchronize=lambda: calls.append("wait"),
        elapsed_time=lambda end: next(ms),
    )
    monkeypatch.setattr("torch.cuda.Event", lambda enable_timing: event)
    monkeypatch.setattr(latency, "_LEAST_MS", 0.0)
    passes, gpu = counted(calls, "pass"), torch.device("cuda")
    assert latency.time_in_turn(passes, rounds=1, device=gpu)["pass"].tolist() == [5.0]
    assert calls == ["record", "pass", "record", "wait"] * 2


def times(passes: dict[str, Any], rounds: int) -> latency.Times:
    return latency.time_in_turn(passes, rounds=rounds, device=CPU)


@pytest.mark.parametrize(
    ("each_ms", "rounds"), [(2000, 2), (700, 3), (500, 3), (499, 4), (90, 17), (48, 32), (1, 32)]
)
def test_short_passes_are_timed_more_often(
    monkeypatch: pytest.MonkeyPatch, each_ms: float, rounds: int
) -> None:
    """Until two of them took three seconds, but no more than 16 times as often as asked."""
    clock(monkeypatch, [each_ms] * 200)
    measured = times(counted([], "one", "two"), 2)
    assert {len(ms_N) for ms_N in measured.values()} == {rounds}


def test_ratios_that_are_not_sure_are_refused_with_remedies_or_taken_and_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(latency, "MOST_SPREAD", 0.1)
    noise_N2 = np.random.default_rng(0).lognormal(sigma=0.7, size=(30, 2))
    noisy_ms = (2000.0 * noise_N2).flatten().tolist()
    clock(monkeypatch, noisy_ms)
    with pytest.raises(latency.Unsteady) as refusal:
        times(counted([], "one", "two"), 30)
    assert re.match(
        r"times vary too much: a median is uncertain by \d\d% \(at most 10% is", str(refusal.value)
    )
    for remedy in ("run.threads", "costs.repeats", "limit flops", "costs.take_unsure=true"):
        assert remedy in str(refusal.value)
    first, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"measuring 2 models in 30 rounds: about \d:\d\d", first)
    clock(monkeypatch, noisy_ms)
    passes = counted([], "one", "two")
    taken = latency.time_in_turn(passes, rounds=30, device=CPU, take_unsure=True)
    assert len(taken["one"]) == 30
    said = capsys.readouterr().err
    assert "% (at most 10% is allowed); the times are used all the same" in said
    monkeypatch.setattr(latency, "time_in_turn", lambda *_, **__: taken)
    assert re.search(r"tokens; uncertain by \d\d%$", measure(30).note)


def test_the_interval_of_a_median_holds_it_as_often_as_it_says():
    generator = np.random.default_rng(0)
    for n in (6, 30, 101):
        held = 0
        for _ in range(500):
            low, high = latency.median_interval(generator.exponential(size=n))
            held += low <= np.log(2) <= high
        assert 0.94 <= held / 500 <= 0.99, n
    # Ranks 10 and 21 of 30: so stands it in tables of the sign test.
    assert latency.median_interval(np.arange(1.0, 31.0)) == (10, 21)
    assert latency.median_interval(np.arange(5.0)) is None


CHOSEN = tiny.candidates("attention", "dense")


def model(seed: int = 0) -> tiny.LanguageModel:
    return tiny.language_model([[one] for one in CHOSEN], dtype=torch.float32, seed=seed)


@pytest.mark.parametrize(("name", "tokens"), [("latency", 16), ("throughput", 32), ("decode", 2)])
def test_a_pass_reads_so_many_tokens_behind_a_full_memory(
    name: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = WORKLOADS[name](net := model(), shapes(batch=2, segment=8))
    seen = []
    forward = type(net).forward

    def spy(self, ids_BT, state, *rest, **more):
        seen.append((ids_BT.numel(), state.least_seen, torch.is_grad_enabled()))
        return forward(self, ids_BT, state, *rest, **more)

    monkeypatch.setattr(type(net), "forward", spy)
    read()
    read()
    assert [numel for numel, _, _ in seen] == [tokens, tokens]
    assert all(least >= net.longest_memory for _, least, _ in seen)
    assert not any(grad for _, _, grad in seen)
    assert not net.training
    if name == "decode":  # it goes on and does not read the same token again
        assert seen[1][1] == seen[0][1] + 1


def test_a_training_step_trains_and_leaves_the_weights_as_they_are() -> None:
    net = model()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    step = WORKLOADS["train_step"](net, shapes(segment=8))
    metrics = step()
    assert net.training
    assert metrics["tokens"] == 32
    assert math.isfinite(float(metrics["loss_nats"]))
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_pass_is_computed_in_what_its_key_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = replace(shapes(batch=2), forward=Forward(torch.device("cpu"), "bfloat16"))
    run = WORKLOADS[name](net := model(), given)
    forward, under_autocast = type(net).forward, []

    def spy(self, *rest, **more):
        under_autocast.append(torch.is_autocast_enabled("cpu"))
        return forward(self, *rest, **more)

    monkeypatch.setattr(type(net), "forward", spy)
    run()
    assert under_autocast == [given.key(name)["dtype"] == "bfloat16"]
    assert under_autocast == [name == "train_step"]


def test_a_model_without_slots_can_be_timed() -> None:
    for workload in WORKLOADS.values():
        workload(tiny.language_model([], dtype=torch.float32), shapes())()
