"""KL to a teacher against a direct computation over all words; the teacher's part in a step.

B batch   T segment length   D d_model   V vocabulary
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from model import SoftmaxConfig, distillation
from model.distillation import Lesson, TaughtRows, Teacher, mean_kl
from model.softmax import AdaptiveSoftmax
from model.state import StreamState
from tests.model import tiny
from tests.model.tiny import normal, randomise

V, D = 20, 8
CUTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((5,), (5,)),
    ((4, 9, 15), (4, 9, 15)),
    ((1, 19), (1, 19)),
    ((4, 9), (6,)),
    ((), (5,)),
]


def softmax_of(cutoffs: tuple[int, ...], seed: int, d_embedding: int | None = None) -> Any:
    softmax = AdaptiveSoftmax(V, D, SoftmaxConfig(cutoffs=cutoffs), d_embedding)
    randomise(softmax, seed)
    return softmax


def direct(
    student: AdaptiveSoftmax, h: Tensor, teacher: AdaptiveSoftmax, taught: Tensor, t: float
) -> Tensor:
    """By the definition, over all words: p^(1/t), normalised."""
    wanted = teacher.log_prob(taught).exp() ** (1 / t)
    found = student.log_prob(h).exp() ** (1 / t)
    wanted = wanted / wanted.sum(-1, keepdim=True)
    found = found / found.sum(-1, keepdim=True)
    return (wanted * (wanted / found).log()).sum(-1).mean()


@pytest.mark.parametrize("rows", [1, 5, 1000])
@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_kl_and_its_gradient_are_those_of_the_definition(
    cuts: tuple[tuple[int, ...], tuple[int, ...]],
    temperature: float,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For one row at a time, for some and for all."""
    monkeypatch.setattr(distillation, "_MOST_ENTRIES", rows * V)
    student, teacher = softmax_of(cuts[0], 0, d_embedding=5), softmax_of(cuts[1], 1)
    h_BTD, taught_BTD = normal(3, 4, D).requires_grad_(), normal(3, 4, D, seed=5)
    pair = (student, h_BTD, teacher, taught_BTD, temperature)
    wanted, found = direct(*pair), mean_kl(*pair)
    assert float(wanted.detach()) > 0.1
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    moved = [h_BTD, *student.parameters()]
    gradients = [torch.autograd.grad(3.0 * value, moved) for value in (found, wanted)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(mean_kl(*pair), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 5, 1000])
@pytest.mark.parametrize("d_embedding", [None, 5])
@pytest.mark.parametrize("cutoffs", [cuts[0] for cuts in CUTS], ids=str)
def test_kls_under_one_softmax_need_no_probabilities_of_the_teacher(
    cutoffs: tuple[int, ...], d_embedding: int | None, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distillation, "_MOST_ENTRIES", rows * V)
    softmax = softmax_of(cutoffs, 0, d_embedding)
    h_ND, taught_ND = normal(12, D), normal(12, D, seed=5)
    found_N = TaughtRows.of(softmax, taught_ND).kl(h_ND)
    for row in range(12):
        one = slice(row, row + 1)
        wanted = direct(softmax, h_ND[one], softmax, taught_ND[one], 1.0)
        assert float(wanted.detach()) > 0.05
        torch.testing.assert_close(found_N[row], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("device", "parts"), [("cpu", 2), ("meta", 1)])
def test_a_gpu_takes_more_rows_at_a_time_than_a_cpu_s_cache(device: str, parts: int) -> None:
    softmax, rows = softmax_of((4, 9), 0), 1 + 2**20 // V
    found = distillation._Pair(softmax, softmax, 1.0).rows(torch.empty(rows, D, device=device))
    assert len(list(found)) == parts


def test_a_model_is_at_no_distance_from_itself() -> None:
    softmax, h_BTD = softmax_of((4, 9), 0), normal(3, 4, D)
    for temperature in (1.0, 2.0):
        assert mean_kl(softmax, h_BTD, softmax, h_BTD, temperature).item() == 0.0


KINDS = [
    *("attention", "short_conv", "gated_delta", "linear_attention", "adaptive_span"),
    *("all_attention", "persistent", "routing", "mixture_of_experts", "product_key_memory"),
]


def read_twice(teacher: Teacher, parts: list[slice]) -> tuple[list[Tensor], StreamState]:
    """What a teacher makes of four segments, which begin again after two, part by part."""
    state, found = teacher.initial_state(3), []
    for number in range(4):
        ids_BT = tiny.tokens(3, 7, seed=number % 2)
        state = state.reset() if number == 2 else state
        made = [teacher.model(ids_BT[part], state.rows(part))[:2] for part in parts]
        found.append(torch.cat([h_BTD for h_BTD, _ in made]))
        state = StreamState.join([carried for _, carried in made])
        # As a kill and a resume leave it.
        state = StreamState.from_tensors(state.tensors(), like=teacher.initial_state(3))
    return found, state


@pytest.mark.parametrize("kind", KINDS)
def test_a_teachers_memory_is_that_of_an_evaluation(kind: str) -> None:
    """In parts, after a resume, and after streams begin anew."""
    options = {"window": 5} if kind == "attention" else {}
    slots = [[tiny.candidate(kind, **options)], [tiny.candidate("dense")]] * 2
    model = tiny.language_model(slots, cutoffs=(6, 12))
    teacher = Teacher(model, 0.9, 1.0)
    found, _ = read_twice(teacher, [slice(0, 2), slice(2, 3)])
    state = model.initial_state(3, cached=True)
    for number in range(2):
        wanted_BTD, state, _ = model(tiny.tokens(3, 7, seed=number), state)
        for again in (number, number + 2):
            torch.testing.assert_close(found[again], wanted_BTD, rtol=0, atol=1e-12)


def test_the_loss_of_a_lesson_weighs_kl_and_nats() -> None:
    slots = [[tiny.candidate("attention")], [tiny.candidate("dense")]]
    student, model = (tiny.language_model(slots, cutoffs=(6,)) for _ in range(2))
    randomise(model, seed=9)
    ids_BT, targets_BT = tiny.tokens(2, 5), tiny.tokens(2, 5, seed=3)
    h_BTD, _, _ = student(ids_BT, student.initial_state(2))
    taught_BTD, _, _ = model(ids_BT, model.initial_state(2, cached=True))
    nats = student.nll(h_BTD, targets_BT).mean()
    kl = direct(student.softmax, h_BTD, model.softmax, taught_BTD, 2.0)
    for weight in (0.3, 1.0):
        teacher = Teacher(model, weight, 2.0)
        lesson = Lesson(teacher, student, teacher.initial_state(2))
        loss = lesson(slice(0, 2), ids_BT, h_BTD, nats)
        torch.testing.assert_close(loss, (1 - weight) * nats + weight * 4 * kl)
        torch.testing.assert_close(lesson.kl_rows[0], 2 * kl.detach())
        torch.autograd.backward([loss], retain_graph=True)
        assert all(each.grad is not None for each in student.parameters())
        assert all(each.grad is None for each in model.parameters())


def test_gradients_in_bfloat16_are_those_of_float32_to_its_rounding() -> None:
    """Autocast keeps what it casts: neither pass may spoil the other's."""
    student, teacher = softmax_of((5,), 0).float(), softmax_of((5,), 1).float()
    h_BTD, taught_BTD = normal(3, 4, D).float().requires_grad_(), normal(3, 4, D, seed=5).float()
    target_BT, found = torch.arange(12).view(3, 4), []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = student.nll(h_BTD, target_BT).mean()
            loss = loss + mean_kl(student, h_BTD, teacher, taught_BTD)
        found.append(torch.autograd.grad(loss, [h_BTD, *student.parameters()]))
    for wide, narrow in zip(*found, strict=True):
        torch.testing.assert_close(narrow, wide, rtol=0.05, atol=0.03)


@pytest.mark.parametrize("kind", ["attention", "short_conv", "all_attention", "routing", "dense"])
def test_the_flops_of_a_teachers_pass_are_those_that_torch_counts(kind: str) -> None:
    """It makes no key of the memory again, and computes every word."""
    slots = [[tiny.candidate(kind)], [tiny.candidate("identity")]]
    teacher = Teacher(tiny.language_model(slots, cutoffs=(6, 12)), 0.9, 1.0)
    ids_BT = torch.tensor([[0, 3, 6, 12, 22], [1, 1, 9, 2, 4]])
    _, state, _ = teacher.model(ids_BT, teacher.initial_state(2))
    with FlopCounterMode(display=False) as counter:
        h_BTD, _, _ = teacher.model(ids_BT, state)
        teacher.model.log_prob(h_BTD)
    declared = teacher.flops_per_token(5, [0.6, 0.2, 0.2])
    assert declared * 10 == pytest.approx(counter.get_total_flops(), rel=1e-12)
