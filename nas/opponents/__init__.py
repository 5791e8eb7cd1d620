"""Opponents of a chosen layout that cost what it costs."""

from nas.opponents.equal_cost import OPPONENTS, Contest, NoOpponent, Opponent

__all__ = ["OPPONENTS", "Contest", "NoOpponent", "Opponent"]
