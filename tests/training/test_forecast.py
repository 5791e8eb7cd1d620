"""The forecast of memory: what it counts, and that a run does not notice it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from model import LanguageModel
from nas.search.estimators import ESTIMATORS
from tests import tiny
from tests.training.test_recompute import FORWARD, KINDS, search_step, supernet
from training import memory as module
from training.memory import Forecast, Ledger, ProbeBatch, forecast
from training.step import Forward


def test_a_ledger_counts_what_is_made_and_what_is_freed_and_views_not_at_all() -> None:
    before = torch.zeros(500)
    with Ledger() as ledger:
        one = torch.zeros(1000)
        view, old_view = one[::2], before.view(5, 100)
        two = one + 1
        one.add_(2)
        before.mul_(2)
        assert ledger.moments[-1] == 8000
        del one
        two.exp_()
        assert ledger.moments[-1] == 8000  # its view is alive
        del view, old_view
        two.exp_()
        assert ledger.moments[-1] == 4000
        parts = torch.stack([two, two]).unbind()
        assert ledger.moments[-1] == 12000
        del parts
        two.exp_()
    assert ledger.moments[-1] == 4000


def test_a_ledger_follows_the_backward_pass() -> None:
    weight = torch.ones(1000, requires_grad=True)
    with Ledger() as ledger:
        loss = (weight.exp() * weight).sum()
        forwards = ledger._live
        loss.backward()
    # exp is kept, its product with the weight is gone once it is summed; then the gradient.
    assert forwards == 4000 + 4
    assert weight.grad is not None
    assert max(ledger.moments) >= 8000
    del loss
    assert ledger._live == 4000


def rows(count: int, segment: int = 7) -> ProbeBatch:
    """Equal streams, so that every number of them has the same part of its tokens in each tail."""
    one = tiny.batch(1, segment, seed=3)
    return ProbeBatch(one.input_BT.repeat(count, 1), one.target_BT.repeat(count, 1))


def searches(
    forward: Forward, estimator: str, kinds: Sequence[Any] = KINDS, **alpha: Any
) -> tuple[Any, Any, Any]:
    model = supernet(torch.float32, kinds=kinds)
    step, state = search_step(model, forward, estimator, warmup_fraction=0.0, **alpha)
    state.streams = {"weights": model.initial_state(9)}
    step = replace(step, noise=lambda *_: torch.tensor([[9.0, 5.0, 0.0]] * 4))

    def make(forward: Forward, batch: Any) -> Any:
        return replace(step, weight_step=replace(step.weight_step, forward=forward))

    return step, state, make


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"recompute": True},
        pytest.param({"micro_batches": 3}, marks=pytest.mark.slow),
        {"micro_batches": 3, "recompute": True},
        {"precision": "bfloat16"},
    ],
)
@pytest.mark.parametrize(
    ("estimator", "data"), [*((name, "prequential") for name in ESTIMATORS), ("soft", "shared")]
)
def test_it_is_the_peak_of_a_real_step_of_all_streams(
    estimator: str, data: str, options: dict[str, Any]
) -> None:
    """Two real steps of 9 streams, counted whole; the forecast only ever ran 2 and 3 a part."""
    forward = replace(FORWARD, **options)
    step, state, make = searches(forward, estimator, data=data)
    found = forecast(state, rows(9), forward, [make])
    with Ledger() as ledger:
        state.streams = {"weights": state.model.initial_state(9)}
        step(state, rows(9))
        within = len(ledger.moments)
        step(state, rows(9))
    moments = sum(p.numel() for p in state.model.parameters() if p.grad is not None) * 8
    expected = max(ledger.moments[within:]) - moments
    assert found.optimiser == 2 * found.weights
    tensors = found.total - found.overhead
    assert tensors - found.weights - found.optimiser == pytest.approx(expected, rel=0.03)


def test_the_greediest_of_the_steps_counts() -> None:
    step, state, _ = searches(FORWARD, "single_path")

    def drawing(candidate: int) -> Any:
        noise_LC = 9.0 * torch.nn.functional.one_hot(torch.full((4,), candidate), 3)
        return lambda forward, batch: replace(step, noise=lambda *_: noise_LC)

    alone = [forecast(state, rows(9), FORWARD, [drawing(k)]) for k in range(3)]
    tensors = [found.total - found.overhead for found in alone]
    assert len(set(tensors)) == 3
    together = forecast(state, rows(9), FORWARD, [drawing(k) for k in range(3)])
    assert together.total - together.overhead == max(tensors)


def test_the_parts_are_what_they_say() -> None:
    _, state, make = searches(FORWARD, "soft")
    found = forecast(state, rows(9), FORWARD, [make])
    numbers = sum(parameter.numel() for parameter in state.model.parameters())
    assert (found.weights, found.gradients, found.optimiser) == (4 * numbers,) * 2 + (8 * numbers,)
    assert found.streams == 4 * (9 * 5 * 8 * 4) + 9 * 8
    assert Forecast(1, 2, 3, 4, 5, 6).total == 21


def test_spans_count_as_they_begin_and_are_named_where_they_may_grow() -> None:
    def counted(first_span: float) -> tuple[int, list[str]]:
        span = {"kind": "adaptive_span", "span": 40, "ramp": 2, "first_span": first_span}
        _, state, make = searches(FORWARD, "soft", (span, "dense", "identity"))
        needed = forecast(state, rows(9), FORWARD, [make])
        return needed.total - needed.overhead, state.model.may_cost_more

    (short, grows), (half, grows_too), (whole, stays) = map(counted, (0.0, 0.5, 1.0))
    assert short < half < whole
    assert (grows, grows_too, stays) == (["adaptive_span"], ["adaptive_span"], [])


def tensors_of(model: LanguageModel) -> list[torch.Tensor]:
    """Also those that no checkpoint has."""
    return [*model.parameters(), *model.buffers()]


@pytest.mark.parametrize(
    "kinds",
    [KINDS, ("routing", "mixture_of_experts", {"kind": "adaptive_span", "first_span": 0.5})],
)
def test_nothing_of_the_run_changes(kinds: Sequence[Any]) -> None:
    _, state, make = searches(replace(FORWARD, micro_batches=2), "soft", kinds)
    weights, said = [p.detach().clone() for p in tensors_of(state.model)], state.model.describe()
    streams, random, threads = (
        state.streams["weights"],
        torch.get_rng_state(),
        torch.get_num_threads(),
    )
    alpha_LC = state.parameters["alpha"].detach().clone()
    forecast(state, rows(9), FORWARD, [make])
    assert all(torch.equal(a, b) for a, b in zip(weights, tensors_of(state.model), strict=True))
    assert state.model.describe() == said
    assert all(p.grad is None for p in (*state.model.parameters(), state.parameters["alpha"]))
    assert torch.equal(alpha_LC, state.parameters["alpha"])
    assert state.streams["weights"] is streams
    assert (state.step, state.tokens, state.loss_steps, float(state.loss_sum)) == (0, 0, 0, 0.0)
    assert not state.optimisers["weights"].state
    assert torch.equal(random, torch.get_rng_state())
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("keeps", [True, False])
def test_a_process_that_keeps_freed_memory_holds_a_fifth_more(
    keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "keeps_freed_memory", lambda: keeps)
    _, state, make = searches(FORWARD, "soft")
    found = forecast(state, rows(9), FORWARD, [make])
    tensors = replace(found, overhead=0).total
    assert found.overhead == (round(0.2 * tensors) if keeps else 0)
