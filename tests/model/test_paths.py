"""Every path of attention against the formula in a loop, and which path serves where.

B batch   T segment length   M memory length   S = M + T keys   D d_model   H heads   K head dim
"""

import pytest
import torch
from torch import Tensor

from model import factored, flex, paths
from model.blocks.attention import AttentionBlock
from model.paths import FASTEST, PATHS
from model.relative import Parts, Place
from model.segment import Segment
from tests.model.test_attention import CASES, block, one_by_one
from tests.model.tiny import D_MODEL, language_model, normal, tokens
from tests.model.tiny import candidate as tiny_candidate

DIFFERENTIABLE_ON_A_CPU = [name for name in PATHS if name != "flex"]
# Streams of which some rows of memory are not valid yet, and streams whose memory is full.
AGES = {"young": [0, 1, 50], "full": [50, 60, 70]}
every_case = pytest.mark.parametrize("case", CASES)
every_age = pytest.mark.parametrize("age", AGES)


class Reading:
    """A block, what it reads, and the formula's output."""

    def __init__(self, case: str, age: str) -> None:
        self.segment, self.memory, window, clamp = CASES[case]
        self.full = age == "full"
        self.block = block(window=window, memory=self.memory, d_head=3, clamp=clamp)
        self.c_BSD = normal(3, self.memory + self.segment, D_MODEL).requires_grad_()
        self.seen_B = torch.tensor(AGES[age])
        valid_BM = torch.arange(self.memory, 0, -1) <= self.seen_B[:, None]
        self.wanted = one_by_one(self.block, self.c_BSD, valid_BM)

    def output(self, path: str | None) -> Tensor:
        segment = Segment(self.seen_B, self.segment, full=self.full, path=path)
        delta_BTD: Tensor = self.block(self.c_BSD, segment, None)[0]
        return delta_BTD

    def gradients(self, out: Tensor) -> list[Tensor]:
        weight = normal(*out.shape, seed=5)
        inputs = [self.c_BSD, *self.block.parameters()]
        return list(torch.autograd.grad((out * weight).sum(), inputs))


@every_age
@every_case
def test_every_path_gives_the_formulas_value_and_gradients(case: str, age: str) -> None:
    reading = Reading(case, age)
    wanted = reading.gradients(reading.wanted)
    for path in DIFFERENTIABLE_ON_A_CPU:
        found = reading.output(path)
        torch.testing.assert_close(found, reading.wanted, rtol=0, atol=1e-12)
        for a, b in zip(reading.gradients(found), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@every_age
@every_case
@torch.no_grad()
def test_flex_gives_the_formulas_value(case: str, age: str) -> None:
    reading = Reading(case, age)
    torch.testing.assert_close(reading.output("flex"), reading.wanted, rtol=0, atol=1e-12)


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="FlexAttention has gradients on a GPU alone"
)
@every_age
@every_case
def test_flex_gives_the_formulas_gradients_on_a_gpu(case: str, age: str) -> None:
    reading = Reading(case, age)
    wanted = reading.gradients(reading.wanted)
    reading.block.float().cuda()
    reading.c_BSD = reading.c_BSD.detach().float().cuda().requires_grad_()
    reading.seen_B = reading.seen_B.cuda()
    found = reading.output("flex")
    weight = normal(*found.shape, seed=5).float().cuda()
    inputs = [reading.c_BSD, *reading.block.parameters()]
    for a, b in zip(torch.autograd.grad((found * weight).sum(), inputs), wanted, strict=True):
        assert (a.cpu().double() - b).norm() <= 1e-3 * b.norm() + 1e-6


@pytest.mark.parametrize("d_head", [3, 4])
@pytest.mark.parametrize("width", [7, 8])
def test_wide_queries_times_wide_keys_are_the_scores(width: int, d_head: int) -> None:
    """Also for an odd width, which has one cosine less."""
    batch, segment, memory, heads = 2, 3, 4, 2
    keys, place = memory + segment, Segment(torch.tensor([9, 9]), segment, full=True)
    w_r_ED = normal(heads * d_head, width, seed=1)
    r_SD = place.encodings(memory, width, None, torch.float64)
    parts = Parts(
        normal(batch, segment, heads, d_head, seed=3),
        normal(batch, keys, heads, d_head, seed=4),
        normal(batch, keys, heads, d_head, seed=5),
        (r_SD @ w_r_ED.T).view(keys, heads, d_head),
        normal(heads, d_head, seed=6),
        normal(heads, d_head, seed=7),
        place.mask(memory, None, torch.float64),
    )
    whence = Place(place, memory, None, None, w_r_ED)
    q_BTHE, k_BSHE = factored.wide_queries(parts, whence), factored.wide_keys(parts, whence)
    assert q_BTHE.shape[-1] == d_head + 8
    for i in range(segment):
        for j in range(memory + i + 1):
            content = ((parts.q_BTHK[:, i] + parts.u_HK) * parts.k_BSHK[:, j]).sum(-1)
            r_HK = parts.r_SHK[keys - 1 - (memory + i - j)]
            wanted = content + ((parts.q_BTHK[:, i] + parts.v_HK) * r_HK).sum(-1)
            torch.testing.assert_close((q_BTHE[:, i] * k_BSHE[:, j]).sum(-1), wanted)
    value = parts.value_BSHK
    padded, bare = (factored.plain(q_BTHE, k_BSHE, value, 0.0, pad=pad) for pad in (True, False))
    assert padded.shape == bare.shape == parts.q_BTHK.shape
    torch.testing.assert_close(padded, bare, rtol=0, atol=1e-12)


def ran(monkeypatch: pytest.MonkeyPatch, reading: Reading, path: str | None) -> str:
    """The name of the path that was taken."""
    taken = []
    for name, known in PATHS.items():

        def run(parts: Parts, place: Place, rate: float, name: str = name) -> Tensor:
            taken.append(name)
            return torch.zeros_like(parts.q_BTHK)

        monkeypatch.setitem(paths.PATHS, name, paths.Path(run, known.serves))
    reading.output(path)
    (name,) = taken
    return name


@pytest.mark.parametrize(
    ("case", "age", "serves"),
    [
        ("long_memory", "full", True),
        ("no_memory", "young", True),
        ("window_wider_than_all", "full", True),
        ("clamp_wider_than_all", "full", True),
        ("long_memory", "young", False),
        ("window", "full", False),
        ("clamp", "full", False),
        ("clamp_and_one_token", "full", False),
    ],
)
def test_where_factors_do_not_serve_the_devices_path_does(
    case: str, age: str, serves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(case, age)
    assert ran(monkeypatch, reading, "factored") == ("factored" if serves else "fused")
    monkeypatch.delitem(FASTEST, "cpu")
    assert ran(monkeypatch, reading, "factored") == ("factored" if serves else "with_bias")


def test_where_the_devices_path_does_not_serve_the_bias_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Reading("window", "full")
    for asked in (None, "factored", "flex"):
        with monkeypatch.context() as patch:
            patch.setattr("torch.compiler.is_compiling", lambda: True)
            assert ran(patch, reading, asked) == "with_bias"


def test_the_device_decides_where_no_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading("window", "full")
    assert ran(monkeypatch, reading, None) == FASTEST["cpu"] == "fused"
    monkeypatch.delitem(FASTEST, "cpu")
    assert ran(monkeypatch, reading, None) == "with_bias"


def test_flex_serves_where_nothing_is_dropped_and_no_gradient_is_asked_of_a_cpu() -> None:
    reading = Reading("window", "full")
    segment, device = Segment(torch.tensor([0]), 2), torch.device("cpu")
    place = Place(segment, 0, None, None, reading.block.position.weight)
    assert not flex.serves(device, place, 0.0)
    with torch.no_grad():
        assert flex.serves(device, place, 0.0)
        assert not flex.serves(device, place, 0.1)


def test_distances_are_projected_only_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, projected = Reading("long_memory", "full"), []
    known = AttentionBlock._distances

    def recorded(block: AttentionBlock, segment: Segment, like: Tensor) -> Tensor:
        projected.append(segment.path)
        return known(block, segment, like)

    monkeypatch.setattr(AttentionBlock, "_distances", recorded)
    for path in DIFFERENTIABLE_ON_A_CPU:
        reading.output(path)
    assert projected == ["with_bias", "fused"]


@pytest.mark.parametrize("path", DIFFERENTIABLE_ON_A_CPU)
def test_in_bfloat16_values_and_gradients_stay_close(path: str) -> None:
    wide, low = Reading("long_memory", "full"), Reading("long_memory", "full")
    for reading in (wide, low):
        for parameter in reading.block.parameters():
            # Scores of the size that training has: an error of one of 10 would be 0.03.
            parameter.data.mul_(0.5)
    wanted = wide.output("fused")
    low.block.bfloat16()
    low.c_BSD = low.c_BSD.detach().bfloat16().requires_grad_()
    found = low.output(path)
    assert found.dtype == torch.bfloat16
    assert (found.double() - wanted).norm() < 0.03 * wanted.norm()
    for a, b in zip(low.gradients(found), wide.gradients(wanted), strict=True):
        assert (a.double() - b).norm() < 0.04 * b.norm()


def test_angles_far_away_are_those_of_float32_in_bfloat16() -> None:
    """Positions 2000 and 2001 are one number in bfloat16."""
    q_BTHK = torch.zeros(1, 1, 1, 4, dtype=torch.bfloat16)
    place = Place(Segment(torch.tensor([4000]), 1, full=True), 2001, None, None, torch.zeros(4, 8))
    parts = Parts(*[q_BTHK.expand(1, 2002, 1, 4)] * 4, *[torch.zeros(1, 4)] * 2, q_BTHK[0, 0])
    k_SE = factored.wide_keys(parts, place)[0, :, 0]
    position_S = torch.arange(2002, dtype=torch.float64)
    wanted = torch.cos(position_S).bfloat16()
    assert (k_SE[:, 4] - wanted).abs().max() < 0.01


@pytest.mark.parametrize("path", DIFFERENTIABLE_ON_A_CPU)
def test_a_model_reads_on_by_any_path(path: str) -> None:
    """Memories fill up over the segments: the first ones have rows that are not valid."""
    slots = [[tiny_candidate("attention", memory=4)], [tiny_candidate("attention", memory=3)]]
    model, ids_BT = language_model(slots), tokens(2, 12)
    states = [model.initial_state(2), model.initial_state(2)]
    for start in range(0, 12, 3):
        ids = ids_BT[:, start : start + 3]
        wanted, states[0], _ = model(ids, states[0])
        found, states[1], _ = model(ids, states[1], attention=path)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    assert states[0].least_seen == 12
