"""What is timed is what it says: full memories, one token, a real step of training."""

import math
from dataclasses import replace

import pytest
import torch

from nas.costs import latency as workloads
from nas.costs.latency import WORKLOADS
from tests import tiny
from tests.nas.costs.test_latency import shapes
from training.step import Forward

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


def test_decoding_gives_what_reading_without_a_cache_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    net, given = model(), shapes(batch=2, segment=8)
    logs = []
    real = type(net).log_prob

    def spy(self, h_BTD):
        logs.append(real(self, h_BTD))
        return logs[-1]

    monkeypatch.setattr(type(net), "log_prob", spy)
    read = workloads.decode(net, given)
    read()
    with torch.inference_mode():
        state = net.initial_state(2)  # inputs are kept, and not keys and values
        for _ in range(2 + net.longest_memory // 8):
            _, state, _ = net(given.ids_BT, state)
        for _ in range(2):
            h_B1D, state, _ = net(given.ids_BT[:, :1], state)
        assert len(logs) == 2
        torch.testing.assert_close(logs[-1], real(net, h_B1D), atol=1e-5, rtol=1e-5)


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
