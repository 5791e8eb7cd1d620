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
        serves: whether it can.
    """

    run: Callable[[Parts, Place, float], Tensor]
    serves: Callable[[Parts, Place, float], bool]


def _fused_serves(parts: Parts, place: Place, rate: float) -> bool:
    """Its dropout is a CPU's, and a compiler finds more in `with_bias`."""
    on_cpu = parts.q_BTHK.device.type == "cpu"
    return (on_cpu or rate == 0) and not torch.compiler.is_compiling()


ALWAYS = "with_bias"
PATHS = {
    "with_bias": Path(lambda parts, place, rate: with_bias(parts, rate), lambda *given: True),
    "fused": Path(lambda parts, place, rate: fused(parts, rate), _fused_serves),
    "factored": Path(factored.factored, factored.serves),
    "flex": Path(flex.flex, flex.serves),
}
# By device, as measured (docs/benchmarks.md); on others nothing has been measured yet.
FASTEST = {"cpu": "fused"}


def attend(parts: Parts, place: Place, rate: float, training: bool) -> Tensor:
    """The attended values (B, T, H, K), by the path asked for or the device's fastest.

    Where the path asked for cannot serve, the device's does: a clamp, a window or rows of memory
    that are not valid yet have no factors, and FlexAttention drops nothing. Where that cannot
    either, `with_bias` does.

    Args:
        parts: queries, keys, values, distances, biases, mask.
        place: where they come from; its segment names the path.
        rate: dropout of the attention weights.
        training: whether anything is dropped.
    """
    rate = rate if training else 0.0
    fastest = FASTEST.get(parts.q_BTHK.device.type, ALWAYS)
    for name in (place.segment.path or fastest, fastest):
        if PATHS[name].serves(parts, place, rate):
            return PATHS[name].run(parts, place, rate)
    return PATHS[ALWAYS].run(parts, place, rate)
