"""Sizes of models that are not built."""

from typing import Any

import pytest

from model import LanguageModel, SoftmaxConfig
from model.saving import shapes_of
from tests.model.tiny import D_MODEL, VOCABULARY, candidate


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("cutoffs", [(), (5, 11)])
@pytest.mark.parametrize("tie_slots", [None, 1, 2, 9])
def test_they_are_those_of_the_model(
    tied: bool, cutoffs: tuple[int, ...], tie_slots: int | None
) -> None:
    attention, dense, identity = map(candidate, ("attention", "dense", "identity"))
    slots = [[dense], [attention, dense, identity], [dense], [identity], [attention]]
    sizes: dict[str, Any] = {
        "d_model": D_MODEL,
        "vocabulary_size": VOCABULARY,
        "softmax": SoftmaxConfig(tied=tied, cutoffs=cutoffs),
        "tie_slots": tie_slots,
    }
    model = LanguageModel(slots, **sizes)
    found = shapes_of(slots, **sizes)
    assert found.tensors == {name: tuple(t.shape) for name, t in model.state_dict().items()}
    memory = model.initial_state(1).memory
    assert found.memory_rows == sum(part.shape[1] for part in memory if part is not None)
    assert found.memory_rows > 0
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())


def test_terabytes_are_counted_and_not_taken() -> None:
    huge = candidate("dense", d_ffn=2**20)
    found = shapes_of(
        [[huge]] * 4096, d_model=2**16, vocabulary_size=2**24, softmax=SoftmaxConfig()
    )
    assert found.tensors["slots.4095.blocks.dense.inner.weight"] == (2**20, 2**16)
    assert ("norm.weight", (2**16,)) in found.tensors.items()
