"""Opponents of a chosen layout that cost what it costs; the rules stand in nas/derivation."""

from collections.abc import Callable, Sequence

from nas.opponents.base import Contest, NoOpponent, Opponent
from nas.opponents.interleaved_narrow import interleaved_narrow
from nas.opponents.interleaved_short import interleaved_short
from nas.opponents.permuted import permuted
from nas.opponents.random_equal import random_equal
from nas.opponents.sandwich_k import sandwich_k

# By the name in compare.opponents.
OPPONENTS: dict[str, Callable[[Contest], Sequence[Opponent]]] = {
    "random": random_equal,
    "permuted": permuted,
    "interleaved_short": interleaved_short,
    "interleaved_narrow": interleaved_narrow,
    "sandwich_k": sandwich_k,
}

__all__ = ["OPPONENTS", "Contest", "NoOpponent", "Opponent"]
