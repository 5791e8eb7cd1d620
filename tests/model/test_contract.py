"""Every check of the contract fails for a block that breaks it."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from model import BLOCKS, Candidate, ModelOptions
from model.blocks import BlockKind, BlockOptions
from model.blocks.base import linear
from model.blocks.options import Label
from model.config import NO_OPTIONS
from model.state import Segment
from tests.model import contract
from tests.model.tiny import candidate


class SampleOptions(BlockOptions):
    """Options of a kind that only tests know."""

    kind: Literal["sample"] = "sample"
    label: Label = "sample"


class SampleBlock(nn.Module):
    """A linear map of each token, which holds the contract."""

    memory_rows = 0
    adds_nothing = False

    def __init__(self, options: SampleOptions, d_model: int, dropout: Any) -> None:
        super().__init__()
        self.map = linear(d_model, d_model, bias=False)

    def forward(self, c_BSD: Tensor, segment: Segment, state: Any) -> Any:
        return self.map(self.read(c_BSD)), None, None

    def read(self, c_BSD: Tensor) -> Tensor:
        """What is mapped."""
        return c_BSD

    def flops(self, batch: int, segment: int, memory: int) -> float:
        return 2.0 * self.map.weight.numel()


class SeesTheFuture(SampleBlock):
    """A mean over the segment."""

    def read(self, c_BSD: Tensor) -> Tensor:
        return c_BSD + c_BSD.mean(dim=1, keepdim=True)


class SeesEarlierTokens(SampleBlock):
    """A sum over the segment so far, which the registry does not know of, and nothing carries."""

    def read(self, c_BSD: Tensor) -> Tensor:
        return c_BSD.cumsum(dim=1)


class SeesOtherStreams(SampleBlock):
    """A mean over the batch."""

    def read(self, c_BSD: Tensor) -> Tensor:
        return c_BSD - c_BSD.mean(dim=0, keepdim=True)


class SeesWhereSegmentsOfAnEvaluationEnd(SampleBlock):
    """It takes all that is read at once for one segment."""

    def forward(self, c_BSD: Tensor, segment: Segment, state: Any) -> Any:
        return self.map(c_BSD * segment.length), None, None


class DrawsInAnEvaluation(SampleBlock):
    """Dropout that is never off."""

    def read(self, c_BSD: Tensor) -> Tensor:
        return nn.functional.dropout(c_BSD, 0.5, training=True)


class HasAnIdleParameter(SampleBlock):
    """A parameter that nothing reads."""

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        self.idle = nn.Parameter(torch.zeros(2))


class CostsMoreThanItSays(SampleBlock):
    """Too cheap for a budget."""

    def flops(self, batch: int, segment: int, memory: int) -> float:
        return 1.0


class HasAnotherShape(SampleBlock):
    """Twice as many tokens."""

    def read(self, c_BSD: Tensor) -> Tensor:
        return torch.cat([c_BSD, c_BSD], dim=1)


class CarriesAGradient(SampleBlock):
    """Around the slot, which would cut it off."""

    kept: Tensor | None = None

    def read(self, c_BSD: Tensor) -> Tensor:
        before, self.kept = self.kept, c_BSD.mean(dim=(0, 1))
        return c_BSD if before is None else c_BSD + before


class KnowsItsLabel(SampleBlock):
    """It is another block in a SuperNet."""

    made = 0

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        type(self).made += 1
        self.number = float(self.made)

    def read(self, c_BSD: Tensor) -> Tensor:
        return c_BSD * self.number


class KeepsItsStateToItself(SampleBlock):
    """What no file has and no stream can be told apart in."""

    kept: Tensor | None = None

    def read(self, c_BSD: Tensor) -> Tensor:
        before, self.kept = self.kept, c_BSD.detach().mean(dim=(0, 1))
        return c_BSD if before is None else c_BSD + before


class HasANumberInNoFile(SampleBlock):
    """A buffer that is neither saved nor 0."""

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        self.register_buffer("factor", torch.full((), 2.0), persistent=False)

    def read(self, c_BSD: Tensor) -> Tensor:
        return c_BSD * self.factor


class ChoosesByRoundedProducts(SampleBlock):
    """A choice that bfloat16 makes another way, as of experts whose scores are near."""

    def read(self, c_BSD: Tensor) -> Tensor:
        score_BS1 = self.map(c_BSD).sum(dim=-1, keepdim=True)
        return torch.where((1000 * score_BS1) % 2 < 1, c_BSD, -c_BSD)


Check = Callable[[Candidate, ModelOptions], None]
BROKEN: tuple[tuple[type[SampleBlock], Check], ...] = (
    (HasAnotherShape, contract.delta_has_the_shape_of_the_segment),
    (SeesTheFuture, contract.no_position_sees_a_later_one),
    (SeesEarlierTokens, contract.what_mixes_tokens_says_so),
    (SeesOtherStreams, contract.streams_do_not_see_each_other),
    (SeesEarlierTokens, contract.segments_do_not_matter),
    (SeesWhereSegmentsOfAnEvaluationEnd, contract.segments_may_be_read_at_once),
    (KeepsItsStateToItself, contract.a_reset_stream_begins_anew),
    (CarriesAGradient, contract.no_gradient_flows_into_earlier_segments),
    (DrawsInAnEvaluation, contract.an_evaluation_draws_no_random_number),
    (HasAnIdleParameter, contract.a_finite_gradient_reaches_every_parameter),
    (CostsMoreThanItSays, contract.declared_flops_are_those_that_torch_counts),
    (KnowsItsLabel, contract.a_one_hot_supernet_slot_is_the_model_derived_from_it),
    (KeepsItsStateToItself, contract.what_streams_carry_returns_from_a_file),
    (HasANumberInNoFile, contract.a_loaded_model_is_whole),
    (ChoosesByRoundedProducts, contract.bfloat16_is_near_float32),
)


def register(monkeypatch: pytest.MonkeyPatch, block: type[SampleBlock]) -> Candidate:
    module = ModuleType("model.blocks.sample")
    monkeypatch.setattr(module, "Block", block, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    kind = BlockKind("z", SampleOptions, "Block", mixes_tokens=False)
    monkeypatch.setitem(BLOCKS, "sample", kind)
    return candidate("sample")


def test_every_check_is_broken_by_a_block() -> None:
    assert {check for _, check in BROKEN} == set(contract.CONTRACT)


@pytest.mark.parametrize("check", contract.CONTRACT, ids=lambda check: check.__name__)
def test_a_plain_block_holds_it(monkeypatch: pytest.MonkeyPatch, check: Check) -> None:
    check(register(monkeypatch, SampleBlock), NO_OPTIONS)


@pytest.mark.parametrize(("block", "check"), BROKEN, ids=lambda value: value.__name__)
def test_a_block_that_breaks_it_is_found(
    monkeypatch: pytest.MonkeyPatch, block: type[SampleBlock], check: Check
) -> None:
    with pytest.raises(AssertionError):
        check(register(monkeypatch, block), NO_OPTIONS)
