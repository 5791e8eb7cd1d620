"""The sizes of models and batches at which speed is measured."""

from dataclasses import dataclass

LABELS = ("attention", "dense", "identity")
SHAPES = ("small", "large")


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and its batches; slots alternate between attention and dense."""

    d_model: int
    slots: int
    n_heads: int
    d_ffn: int
    batch: int
    segment: int
    memory: int
    dropout: float = 0.1
    vocabulary: int = 12_000
    cutoffs: tuple[int, ...] = (250, 2500)


SIZES = {
    "small": Shape(128, 12, 4, 512, 32, 32, 16),
    "large": Shape(256, 24, 4, 1024, 8, 128, 128),
    "paper": Shape(512, 32, 8, 2048, 32, 192, 192, vocabulary=32_000, cutoffs=(4000, 12_000)),
}
