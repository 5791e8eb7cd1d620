"""An evaluation whose streams several processes share out; all of them get the same totals."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from training.evaluation import Evaluation
from training.ranks import Ranks

S = TypeVar("S", bound="Divisible")


class Divisible(Protocol):
    """An evaluation text whose streams can be shared out."""

    @property
    def streams(self) -> int:
        """How many there are."""
        ...

    @property
    def scored(self) -> int:
        """How many targets count in all."""
        ...

    @property
    def words(self) -> int | None:
        """How many words the text has, where that is known."""
        ...

    def part(self: S, rows: slice) -> S:
        """Some of the streams."""
        ...


def evaluate_shared(ranks: Ranks, streams: S, evaluate: Callable[[S], Evaluation]) -> Evaluation:
    """Score every token once, on one rank each.

    Args:
        ranks: who shares the streams; one rank alone evaluates as ever.
        streams: the text.
        evaluate: scores what it is given.
    """
    if ranks.world == 1:
        return evaluate(streams)
    mine = Evaluation(nats=0.0, tokens=0, bytes=0)
    if ranks.count(streams.streams):
        mine = evaluate(streams.part(ranks.rows(streams.streams)))
    lossy = mine.bytes is None
    nats, tokens, count, ranks_without = ranks.total(
        [mine.nats, mine.tokens, mine.bytes or 0, float(lossy)]
    )
    assert tokens == streams.scored, (tokens, streams.scored)
    return Evaluation(
        nats=nats,
        tokens=int(tokens),
        bytes=None if ranks_without else int(count),
        words=streams.words,
    )
