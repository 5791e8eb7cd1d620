"""The weight step: memories, clipping, decay."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model import LanguageModel, Mix
from model.distillation import Teacher
from model.slot import Terms
from model.state import Segment
from tests import tiny
from training.config import OptimiserConfig
from training.optim import build_optimiser, clip_gradients, rate_of, set_learning_rate
from training.step import Forward, LayerDropoutStep, WeightStep, uniform_numbers

FORWARD = Forward(torch.device("cpu"), "float32")
MIX = [[(0, None)], [(1, None)], [(0, None)]]


def weight_step(**options: object) -> WeightStep:
    config = OptimiserConfig.model_validate({"warmup_steps": 0, "schedule": "constant", **options})
    return WeightStep(FORWARD, config, rate_of(config, 100))


def test_memories_are_carried_on_and_forgotten_where_an_epoch_starts() -> None:
    state, step = tiny.state_of(tiny.supernet()), weight_step(lr=0.01)
    for expected in (4, 8, 12):
        step(state, tiny.batch(), lambda: MIX)
        assert state.streams["weights"].seen_B.tolist() == [expected] * 2
    fresh = state.model.initial_state(2)
    batch = tiny.batch(seed=3, first=True)
    h_BTD, _, _ = state.model(batch.input_BT, fresh, MIX)
    expected_nats = state.model.nll(h_BTD, batch.target_BT).mean()
    metrics = step(state, batch, lambda: MIX)
    assert float(metrics["loss_nats"]) == pytest.approx(float(expected_nats.detach()), abs=1e-12)
    assert state.streams["weights"].seen_B.tolist() == [4, 4]


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_micro_batches_give_the_gradient_and_the_memories_of_the_whole(parts: int) -> None:
    """Five streams in parts of unequal sizes; two steps, so that memories matter."""
    found = []
    for count in (1, parts):
        state, step = tiny.state_of(tiny.supernet(), rows=5), weight_step(lr=0.1, kind="sgd")
        step = replace(step, forward=replace(FORWARD, micro_batches=count))
        nats = [step(state, tiny.batch(5, seed=seed), lambda: MIX)["loss_nats"] for seed in (0, 1)]
        found.append(([*state.model.parameters(), *nats], state.streams["weights"].tensors()))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=1e-12)
    assert found[0][1].keys() == found[1][1].keys()
    for name, tensor in found[0][1].items():
        torch.testing.assert_close(tensor, found[1][1][name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("parts", [2, 5])
def test_a_teacher_shares_the_parts_and_carries_its_memories(parts: int) -> None:
    found, kinds = [], list(tiny.candidates("attention", "dense"))
    for count in (1, parts):
        model, other = (tiny.language_model([kinds[:1], kinds[1:]], seed=seed) for seed in (0, 1))
        state, teacher = tiny.state_of(model, rows=5), Teacher(other, 0.7, 2.0)
        state.streams["teacher"] = teacher.initial_state(5)
        state.kl_sum = torch.zeros_like(state.loss_sum)
        forward = replace(FORWARD, micro_batches=count)
        step = replace(weight_step(lr=0.1, kind="sgd"), forward=forward, teacher=teacher)
        told = [step(state, tiny.batch(5, seed=seed)) for seed in (0, 1)]
        assert float(state.kl_sum) == pytest.approx(sum(float(one["kl_nats"]) for one in told))
        found.append([*model.parameters(), *(one["kl_nats"] for one in told)])
        found[-1] += state.streams["teacher"].tensors().values()
        assert state.streams["teacher"].seen_B.tolist() == [8] * 5
        step(state, tiny.batch(5, first=True))
        assert state.streams["teacher"].seen_B.tolist() == [4] * 5, "an epoch begins"
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)


def grads(**options: object) -> tuple[list[torch.Tensor], list[torch.Tensor], float]:
    """Gradients before and after clipping, and the norm that is reported."""
    state = tiny.state_of(tiny.supernet())
    h_BTD, _, _ = state.model(tiny.batch().input_BT, state.streams["weights"], MIX)
    state.model.nll(h_BTD, tiny.batch().target_BT).mean().backward()
    found = [p for p in state.model.parameters() if p.grad is not None]
    before = [p.grad.clone() for p in found if p.grad is not None]
    config = OptimiserConfig.model_validate({"clip_norm": None, **options})
    norm = clip_gradients(state.model.parameters(), config)
    return before, [p.grad for p in found if p.grad is not None], float(norm)


def test_clipping_by_norm_by_value_and_each_tensor_by_its_norm() -> None:
    before, after, norm = grads(clip_norm=0.1)
    assert norm > 0.2
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new, old * 0.1 / norm, rtol=1e-4, atol=0)
    before, after, norm = grads(clip_value=0.01)
    assert norm == pytest.approx(float(torch.cat([g.flatten() for g in before]).norm()))
    assert all(torch.equal(b, a.clamp(-0.01, 0.01)) for a, b in zip(before, after, strict=True))
    before, after, _ = grads(clip_each_norm=0.05)
    for old, new in zip(before, after, strict=True):
        expected = old * min(1.0, 0.05 / (float(old.norm()) + 1e-6))
        assert torch.allclose(new, expected, rtol=1e-6)
    assert max(float(g.norm()) for g in before) > 0.05
    assert all(torch.equal(a, b) for a, b in zip(*grads()[:2], strict=True))


def test_decay_acts_on_matrices_and_on_nothing_else() -> None:
    model = tiny.supernet(slots=1)
    optimiser = build_optimiser(model, OptimiserConfig(weight_decay=0.3))
    decays = {
        id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]
    }
    assert len(decays) == len(list(model.parameters()))
    found: dict[float, set[str]] = {0.3: set(), 0.0: set()}
    for name, parameter in model.named_parameters():
        found[decays[id(parameter)]].add(name.removeprefix("slots.0."))
    plain = {f"blocks.attention.{name}" for name in ("u_HK", "v_HK")}
    plain |= {name for name in found[0.3] | found[0.0] if name.endswith("bias") or "norm" in name}
    assert found[0.0] == plain
    assert len(plain) == 10


def test_a_larger_rate_is_no_larger_decay() -> None:
    """The rate multiplies the decay, which also acts on values that no token chose."""
    model = tiny.supernet("product_key_memory", slots=1)
    optimiser = build_optimiser(model, OptimiserConfig(weight_decay=0.3))
    set_learning_rate(optimiser, 1e-3)
    groups = [group for group in optimiser.param_groups if group["weight_decay"]]
    assert sorted(group["lr"] for group in groups) == [1e-3, 1e-2]
    decays = [group["lr"] * group["weight_decay"] for group in groups]
    assert decays == pytest.approx([3e-4, 3e-4])


def test_the_learning_rate_of_the_step_is_used() -> None:
    config = OptimiserConfig(kind="sgd", lr=1.0, warmup_steps=3, clip_norm=None)
    state = tiny.state_of(tiny.supernet())
    step = WeightStep(FORWARD, config, rate_of(config, 10))
    for index, expected in enumerate((0.25, 0.5, 0.75, 1.0)):
        state.step = index
        assert step(state, tiny.batch(), lambda: MIX)["lr"] == expected
        assert {group["lr"] for group in state.optimisers["weights"].param_groups} == {expected}


LAYOUT = ("attention", "dense", "identity", "dense")


def step_of(rate: float = 0.4, seed: int = 0) -> LayerDropoutStep:
    return LayerDropoutStep(weight_step(lr=0.1, kind="sgd"), rate, seed)


def model_of(*layout: str, tie_blocks: int | None = None) -> LanguageModel:
    return tiny.language_model(
        [list(tiny.candidates(kind)) for kind in layout], tie_blocks=tie_blocks
    )


def kept(mix: Mix) -> list[int]:
    return [slot for slot, terms in enumerate(mix) if terms]


def test_draws_are_a_function_of_seed_and_step_and_have_the_rate() -> None:
    model, step = model_of(*["dense"] * 40), step_of()
    draws = [tuple(kept(step.mix(model, at))) for at in range(60)]
    assert draws == [tuple(kept(step.mix(model, at))) for at in range(60)]
    assert len(set(draws)) == 60
    assert tuple(kept(step_of(seed=1).mix(model, 0))) != draws[0]
    assert sum(map(len, draws)) / (40 * 60) == pytest.approx(0.6, abs=0.03)
    # Another seed's step is not this seed's next one.
    assert not np.array_equal(uniform_numbers(0, 1, 4), uniform_numbers(1, 0, 4))


def test_layouts_of_one_network_leave_out_the_same_blocks() -> None:
    step = step_of()
    for at in range(20):
        mixes = [
            step.mix(model_of(*kinds), at) for kinds in (LAYOUT, (*LAYOUT[:2], *LAYOUT[:1:-1]))
        ]
        assert [bool(mixes[0][slot]) for slot in (0, 1, 3)] == [
            bool(mixes[1][slot]) for slot in (0, 1, 2)
        ]


def test_what_is_kept_is_divided_by_what_is_kept_on_average() -> None:
    """So the mean over the draws of what a slot adds is what an evaluation adds."""
    model, step = model_of("dense"), step_of(rate=0.25)
    x_BTD, slot = torch.randn(2, 4, 8, dtype=torch.float64), model.slots[0]
    state = model.initial_state(2)

    def delta(terms: Terms) -> torch.Tensor:
        return slot(x_BTD, None, Segment(state.seen_B, 4), (None,), terms)[0] - x_BTD

    whole = delta([(0, None)])
    mixes = [step.mix(model, at)[0] for at in range(40)]
    for terms in mixes:
        torch.testing.assert_close(delta(terms), whole / 0.75 if terms else 0.0 * whole)
    assert 0 < sum(not terms for terms in mixes) < 20


def test_a_slot_that_is_left_out_is_not_trained_and_remembers_its_inputs() -> None:
    step = step_of(rate=0.5)
    at = next(at for at in range(50) if kept(step.mix(model_of(*LAYOUT), at)) == [1, 2])
    state = tiny.state_of(model_of(*LAYOUT))
    state.step = at
    before = {name: t.clone() for name, t in state.model.state_dict().items()}
    step(state, tiny.batch())
    moved = {name[:7] for name, t in state.model.state_dict().items() if not t.equal(before[name])}
    assert "slots.1" in moved
    assert not {"slots.0", "slots.3"} & moved
    memory = state.streams["weights"].memory[0]
    assert memory is not None
    assert memory.abs().sum() > 0
