"""The digest of a set of tensors."""

import hashlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from model.saving import tensors_digest

DTYPES = [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8,
    torch.bool,
]  # fmt: skip


def tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "b": torch.randn(3, 4, generator=generator),
        "a": torch.randn(2, 3, generator=generator, dtype=torch.float64),
        "scalar": torch.tensor(0.5),
        "empty": torch.zeros(0, 7),
    }


def test_the_digest_is_of_heads_and_bytes_in_the_order_of_the_names() -> None:
    found = {"b": torch.tensor([1, 258], dtype=torch.int16), "a": torch.tensor(True)}
    spelled = b'["a", "torch.bool", []]\n\x01["b", "torch.int16", [2]]\n\x01\x00\x02\x01'
    assert tensors_digest(found) == hashlib.sha256(spelled).hexdigest()


def test_the_order_of_the_tensors_does_not_count() -> None:
    assert tensors_digest(dict(reversed(tensors().items()))) == tensors_digest(tensors())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_counts(dtype: torch.dtype) -> None:
    one = torch.zeros(3, dtype=dtype)
    digests = {tensors_digest({"x": one})}
    raw = one.view(torch.uint8)
    # A bool has one bit; another byte would be no bool.
    bits = range(8) if dtype != torch.bool else range(1)
    for byte in range(raw.numel()):
        for bit in bits:
            raw[byte] ^= 1 << bit
            digests.add(tensors_digest({"x": one}))
            raw[byte] ^= 1 << bit
    assert len(digests) == 1 + raw.numel() * len(bits)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t | {"c": t["b"]},
        lambda t: {name: tensor for name, tensor in t.items() if name != "empty"},
        lambda t: {name.replace("scalar", "scalaR"): tensor for name, tensor in t.items()},
        lambda t: t | {"a": t["b"], "b": t["a"]},
        lambda t: t | {"b": t["b"].reshape(4, 3)},
        lambda t: t | {"b": t["b"].view(torch.int32)},
        lambda t: t | {"scalar": t["scalar"].reshape(1)},
        lambda t: t | {"empty": t["empty"].reshape(7, 0)},
        lambda t: t | {"scalar": -t["scalar"]},
    ],
)
def test_names_types_and_shapes_count(change: Callable[[dict[str, Tensor]], object]) -> None:
    changed = change(tensors())
    assert isinstance(changed, dict)
    assert tensors_digest(changed) != tensors_digest(tensors())


def test_how_a_tensor_lies_in_memory_does_not_count() -> None:
    lies_otherwise = tensors()["b"].t().contiguous().t()
    assert not lies_otherwise.is_contiguous()
    assert tensors_digest({"b": lies_otherwise}) == tensors_digest({"b": tensors()["b"]})


def test_a_parameter_is_taken_as_a_tensor() -> None:
    parameter = torch.nn.Parameter(tensors()["b"])
    assert tensors_digest({"b": parameter}) == tensors_digest({"b": tensors()["b"]})
