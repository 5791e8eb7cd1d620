"""The exact ways to compute relative attention, and which one a device takes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from model import factored, flex
from model.relative import Parts, Place, fused, with_bias


@dataclass(frozen=True)
class Path:
    """One way to the attended values.

    Attributes:
        run: makes them of the parts, their place and the dropout of the attention weights.
        serves: whether it can on a device, at a place, with this dropout.
        distances: whether it reads the projected encodings of the distances.
    """

    run: Callable[[Parts, Place, float], Tensor]
    serves: Callable[[torch.device, Place, float], bool]
    distances: bool = True


def _fused_serves(device: torch.device, place: Place, rate: float) -> bool:
    """Its dropout is a CPU's, and a compiler finds more in `with_bias`."""
    return (device.type == "cpu" or rate == 0) and not torch.compiler.is_compiling()


ALWAYS = "with_bias"
PATHS = {
    "with_bias": Path(lambda parts, place, rate: with_bias(parts, rate), lambda *given: True),
    "fused": Path(lambda parts, place, rate: fused(parts, rate), _fused_serves),
    "factored": Path(factored.factored, factored.serves, distances=False),
    "flex": Path(flex.flex, flex.serves),
}
# By device, as measured (docs/benchmarks.md); on others nothing has been measured yet.
FASTEST = {"cpu": "fused"}


def chosen(device: torch.device, place: Place, rate: float) -> Path:
    """The path asked for, or the device's fastest.

    Where the path asked for cannot serve, the device's does: a clamp, a window or rows of memory
    that are not valid yet have no factors, and FlexAttention drops nothing. Where that cannot
    either, `with_bias` does.

    Args:
        device: where the queries are.
        place: where they and the keys come from; its segment names the path.
        rate: dropout of the attention weights; 0 where nothing is dropped.
    """
    fastest = FASTEST.get(device.type, ALWAYS)
    for name in (place.segment.path or fastest, fastest):
        if PATHS[name].serves(device, place, rate):
            return PATHS[name]
    return PATHS[ALWAYS]
