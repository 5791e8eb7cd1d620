"""What rules drop of a parent: as little as the limit asks for, and what they name."""

from collections.abc import Mapping

import numpy as np
import pytest

from model import layout_letters
from nas import dropping
from nas.baselines import NoBaseline
from nas.costs.budget import Limit
from nas.derivation.base import Choice, context_limit
from nas.dropping import Dropping
from tests.nas.derivation.test_shrink import CANDIDATES, FLOPS, LESS, OWN, Made, request_of


def asked_of(made: Made, most: float, wanted: int = 1, least: int = 1) -> Dropping:
    """What is dropped until the FLOPs are `most`, of which `least` attentions stay."""
    limits = context_limit(CANDIDATES, len(made.options), least)
    overs = [limit.over for limit in (Limit(FLOPS, most), *limits)]
    return Dropping(made.parent, request_of(made).networks.layout, overs[0], overs[1:], wanted)


def left(
    rule: str,
    letters: str = "adadadad",
    most: float = 12.0,
    wanted: int = 1,
    options: Mapping[str, Choice] = LESS,
) -> list[str]:
    """What a rule leaves, in letters."""
    made = Made(letters, options=options)
    asked = asked_of(made, most, wanted)
    found: list[Choice] = getattr(dropping, rule)(asked)
    for choice in found:
        assert asked.fits(choice)
        more = [one for _, one in made.parent.with_more(choice)]
        assert not any(map(asked.fits, more)), "a block could be given back"
    return [layout_letters(asked.layout_of(one)).replace(" ", "") for one in found]


@pytest.mark.parametrize(
    ("rule", "most", "wanted"),
    [
        ("drop_last", 12.0, "adadiiii"),
        ("drop_last", 13.0, "adadidii"),  # a dense block of the four has room
        ("drop_first", 12.0, "iiiiadad"),
        ("drop_spread", 12.0, "idididad"),
        ("drop_spread", 15.0, "adidadid"),
        ("drop_first", 4.0, "iiiiiiai"),
    ],
)
def test_a_rule_drops_where_it_says(rule: str, most: float, wanted: str) -> None:
    assert left(rule, most=most) == [wanted]
    # No block gives way to one with less memory.
    assert left(rule, most=most, options=OWN) == [wanted]


def test_a_place_without_a_block_is_none_to_drop() -> None:
    options = {**LESS, "i": (2,)}
    assert left("drop_spread", "adiiiiad", most=6.0, options=options) == ["idiiiiai"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("least", [1, 3])
def test_what_is_worth_least_in_sum_goes(seed: int, least: int) -> None:
    made = Made("adadadad", seed)
    asked = asked_of(made, 12.0, least=least)
    both = [one for one in made.all() if asked.fits(one) and asked.allowed(one)]

    def lost(choice: Choice) -> float:
        dropped = np.array([kept == 2 for kept in choice])
        return float(made.alone_L[dropped].sum())

    for rule in (dropping.drop_cosine, dropping.drop_prices):
        assert rule(asked) == [min(both, key=lost)]


def test_random_subsets_are_others_each_time_and_the_same_again() -> None:
    found = left("drop_random", wanted=4)
    assert len(set(found)) == 4
    assert left("drop_random", wanted=2) == found[:2]
    assert sorted(left("drop_random", "adad", most=5.0, wanted=50)) == ["aiii", "iiai"]


def test_the_last_block_that_reads_earlier_tokens_stays() -> None:
    """Alone the attentions are the cheapest, and would all go."""
    made = Made("adad")
    made.alone_L[:] = [0.1, 0.4, 0.2, 0.5]
    assert dropping.drop_prices(asked_of(made, 6.0)) == [(2, 2, 0, 1)]
    assert dropping.drop_prices(asked_of(made, 6.0, least=0)) == [(2, 1, 2, 1)]
    for rule in (dropping.drop_last, dropping.drop_prices):
        with pytest.raises(NoBaseline, match="no subset that reads earlier tokens"):
            rule(asked_of(made, 6.0, least=3))
