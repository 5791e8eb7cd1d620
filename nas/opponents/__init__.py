"""Opponents of a chosen layout that cost what it costs; the rules stand in nas/derivation."""

from collections.abc import Callable, Sequence

from nas.opponents.base import Contest, NoOpponent, Opponent
from nas.opponents.interleaved_narrow import interleaved_narrow
from nas.opponents.interleaved_short import interleaved_short
from nas.opponents.permuted import permuted
from nas.opponents.random_equal import random_equal

# By the name in compare.opponents. A random one is drawn, all others are one layout or none.
OPPONENTS: dict[str, Callable[[Contest], Sequence[Opponent]]] = {
    "random": random_equal,
    "permuted": permuted,
    "interleaved_short": interleaved_short,
    "interleaved_narrow": interleaved_narrow,
}

__all__ = ["OPPONENTS", "Contest", "NoOpponent", "Opponent"]
