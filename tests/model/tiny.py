"""Tiny models with large random weights, in which no effect is too small to be seen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from data import Tokenizer
from data.tokenizers.tokenizer import Bytes
from export.source import Source
from model import (
    BLOCKS,
    Architecture,
    Candidate,
    Dropout,
    LanguageModel,
    ModelConfig,
    ModelOptions,
    SoftmaxConfig,
    build_model,
    save_model,
)
from model.config import NO_OPTIONS
from model.ops import NO_DROPOUT, keep

D_MODEL = 8
VOCABULARY = 23
DEFAULTS: dict[str, Any] = ModelConfig(
    n_blocks=1, d_model=D_MODEL, d_ffn=12, n_heads=2, memory=6
).model_dump()


def candidate(kind: str, **options: Any) -> Candidate:
    """A candidate of width D_MODEL; options left out are small."""
    given = {"kind": kind, "label": kind, **options}
    return BLOCKS[kind].options.model_validate(given).completed(D_MODEL, DEFAULTS)


def randomise(module: nn.Module, seed: int = 0) -> None:
    """Draw every parameter from N(0, 0.5), in float64."""
    module.double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.data.normal_(std=0.5, generator=generator)


def language_model(
    slots: Sequence[Sequence[Candidate]],
    *,
    dropout: Dropout = NO_DROPOUT,
    options: ModelOptions = NO_OPTIONS,
    **softmax: Any,
) -> LanguageModel:
    """A random float64 model in evaluation mode."""
    model = LanguageModel(
        slots,
        d_model=D_MODEL,
        vocabulary_size=VOCABULARY,
        softmax=SoftmaxConfig(**softmax),
        dropout=dropout,
        options=options,
    )
    randomise(model)
    return model.eval()


def save_source(folder: Path, *slots: Candidate, **given: Any) -> Source:
    """A model folder of random weights and the tokenizer of bytes."""
    tokenizer = Tokenizer(Bytes())
    architecture = Architecture(
        name="made",
        d_model=D_MODEL,
        blocks=slots,
        softmax=given.pop("softmax", SoftmaxConfig(cutoffs=(100, 200))),
        options=given.pop("options", ModelOptions()),
        vocabulary_size=tokenizer.vocabulary_size,
        tokenizer={"digest": tokenizer.digest},
        provenance={"run": "some | run"},
        **given,
    )
    model = build_model(architecture)
    randomise(model)
    save_model(folder, model.float().eval(), architecture)
    tokenizer.save(folder)
    return Source(folder, architecture, model, tokenizer, None)


def tokens(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    """Random ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


def normal(*shape: int, seed: int = 2) -> torch.Tensor:
    """Standard normal numbers in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def keep_mask(like: torch.Tensor, rate: float) -> torch.Tensor:
    """What dropout multiplies a CPU tensor with: 0 or 1 / (1 - rate), in float64."""
    mask, factor = keep(like, rate)
    return mask.double() * factor
